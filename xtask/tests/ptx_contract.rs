//! Every kernel, built and assembled: as its catalog row says, and at the cost that was blessed.
#![cfg(feature = "ptx")]

#[test]
fn kernels_are_as_the_catalog_says_and_cost_what_was_blessed() {
    let measured = xtask::stats::measure(&[]).unwrap_or_else(|error| panic!("{error}"));
    print!("{}", xtask::stats::table(&measured));
    let mut expected = xtask::stats::expected().unwrap_or_else(|error| panic!("{error}"));
    let mut wrong = Vec::new();
    for kernel in measured {
        let name = kernel.kernel.name;
        wrong.extend(kernel.deviations.iter().map(|deviation| format!("{name}: {deviation}")));
        match expected.remove(name) {
            Some(stats) if stats == kernel.stats => {}
            Some(stats) => wrong.push(format!("{name} costs {:?}, blessed is {stats:?}", kernel.stats)),
            None => wrong.push(format!("{name} was never blessed")),
        }
    }
    wrong.extend(expected.keys().map(|name| format!("{name} was blessed but is not in the catalog")));
    assert!(wrong.is_empty(), "{}\n`cargo xtask bless` accepts new costs", wrong.join("\n"));
}
