//! What is counted on, for how long, and what goes first.

use super::*;

#[test]
fn an_expectation_that_is_never_confirmed_fades_even_if_it_is_repeated() {
    let mut index = index(Source::Events, 1_000, DEFAULT_BYTE_CAP);
    let prompt = keys(&[1, 2, 3]);
    for second in [0, 20, 40] {
        index.expect(W, &prompt, AT(second));
    }
    assert_eq!(index.matches(&prompt, AT(60)).blocks(W), 3);
    assert_eq!(index.matches(&prompt, AT(61)).blocks(W), 0);
}

#[test]
fn what_a_worker_confirmed_does_not_fade() {
    let mut index = index(Source::Events, 1_000, DEFAULT_BYTE_CAP);
    index.expect(W, &keys(&[1, 2, 3]), AT(0));
    store(&mut index, &[1, 2], 0, AT(1)).unwrap();
    assert_eq!(index.matches(&keys(&[1, 2, 3]), AT(10)).blocks(W), 3);
    assert_eq!(index.matches(&keys(&[1, 2, 3]), AT(10_000)).blocks(W), 2);
}

#[test]
fn without_events_an_unused_prefix_is_not_counted_on_for_ever() {
    let mut index = index(Source::Expectation, 1_000, DEFAULT_BYTE_CAP);
    index.expect(W, &keys(&[1, 2, 3]), AT(0));
    assert_eq!(index.matches(&keys(&[1, 2, 3]), AT(1_800)).blocks(W), 3);
    assert_eq!(index.matches(&keys(&[1, 2, 3]), AT(1_801)).blocks(W), 0);
}

#[test]
fn the_longest_unused_prompt_goes_first_and_from_its_tail() {
    let mut index = index(Source::Expectation, 6, DEFAULT_BYTE_CAP);
    index.expect(W, &keys(&[1, 1, 1]), AT(0));
    index.expect(W, &keys(&[2, 2, 2]), AT(1));
    index.expect(W, &keys(&[3, 3]), AT(2));
    assert_eq!(index.matches(&keys(&[1, 1, 1]), AT(3)).blocks(W), 1);
    assert_eq!(index.matches(&keys(&[2, 2, 2]), AT(3)).blocks(W), 3);
}
