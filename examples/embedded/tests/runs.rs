//! Runs the example and checks what its README promises.

use std::process::Command;

#[test]
fn committed_orders_are_confirmed_and_a_rolled_back_one_is_not() {
    let output = Command::new(env!("CARGO_BIN_EXE_embedded-example")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let mut lines: Vec<&str> = text.lines().collect();
    let summary = lines.pop().unwrap();
    lines.sort_unstable();
    assert_eq!(lines, [1, 2, 3].map(|order| format!("confirmation for order {order}")));
    assert!(include_str!("../README.md").contains(summary), "the README says otherwise: {summary}");
}
