//! What the tests share: an independent reference, the rule of comparison, inputs, and the cases.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod cases;
pub mod compare;
pub mod dropout;
pub mod eight_bits;
pub mod elements;
pub mod inputs;
pub mod layout;
pub mod mask;
pub mod quantized;
pub mod reference;
pub mod suite;
pub mod trial;
