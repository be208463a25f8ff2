//! What must not compile.

#[test]
fn lane_dependent_branches_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
