use std::ops::Range;

use super::plan::Admission;
use super::*;

fn scheduler(blocks: usize, sequences: usize, rows: usize) -> Scheduler {
    Scheduler::new(
        Limits { sequences, rows },
        BlockPool::new(blocks, true, false),
    )
}

fn prompt(first: u32, tokens: usize) -> NewSequence {
    NewSequence {
        prompt: (first..).take(tokens).collect(),
        priority: Priority::Normal,
        cache_salt: None,
        max_chunk: usize::MAX,
        reads_cache: true,
    }
}

fn of_class(priority: Priority, new: NewSequence) -> NewSequence {
    NewSequence { priority, ..new }
}

fn add(scheduler: &mut Scheduler, new: NewSequence) -> SeqId {
    scheduler.add(new, 1)[0]
}

/// Plans a step, pretends that it was executed, and gives each sequence that reached its end a token.
fn step(scheduler: &mut Scheduler) -> StepPlan {
    let plan = scheduler.plan();
    for work in &plan.work {
        let chosen: &[u32] = if work.reaches_end { &[7] } else { &[] };
        scheduler.commit(work.id, work.rows.len(), chosen);
    }
    plan
}

fn rows(plan: &StepPlan) -> Vec<(u64, Range<usize>)> {
    plan.work.iter().map(|w| (w.id.0, w.rows.clone())).collect()
}

fn finish(mut scheduler: Scheduler) {
    for id in scheduler.sequences.keys().copied().collect::<Vec<_>>() {
        scheduler.remove(id);
    }
    assert_eq!(scheduler.pool.held(), 0);
    assert!(scheduler.is_idle());
    assert_eq!(scheduler.held_back(), 0);
}

#[test]
fn prompts_are_read_in_chunks_beside_decodes() {
    let mut s = scheduler(64, 4, 10);
    add(&mut s, prompt(0, 4));
    assert_eq!(rows(&step(&mut s)), [(0, 0..4)]);
    add(&mut s, prompt(100, 20));
    assert_eq!(rows(&step(&mut s)), [(0, 4..5), (1, 0..9)]);
    assert_eq!(rows(&step(&mut s)), [(0, 5..6), (1, 9..18)]);
    assert_eq!(rows(&step(&mut s)), [(0, 6..7), (1, 18..20)]);
    finish(s);
}

#[test]
fn a_long_prompt_ahead_does_not_starve_decodes_behind_it() {
    let mut s = scheduler(64, 4, 8);
    add(&mut s, prompt(0, 2));
    step(&mut s);
    add(&mut s, of_class(Priority::High, prompt(100, 40)));
    assert_eq!(rows(&step(&mut s)), [(0, 2..3), (1, 0..7)]);
    assert_eq!(rows(&step(&mut s)), [(0, 3..4), (1, 7..14)]);
    finish(s);
}

#[test]
fn cached_blocks_are_shared_but_the_last_token_is_always_computed() {
    let mut s = scheduler(64, 4, 100);
    add(&mut s, prompt(0, 32));
    step(&mut s);
    let same = add(&mut s, prompt(0, 32));
    let longer = add(&mut s, prompt(0, 33));
    let plan = step(&mut s);
    assert_eq!(
        plan.admitted,
        [
            Admission {
                id: same,
                cached: 16,
                tokens: 32,
                first_time: true
            },
            Admission {
                id: longer,
                cached: 32,
                tokens: 33,
                first_time: true
            }
        ]
    );
    assert_eq!(rows(&plan), [(0, 32..33), (1, 16..32), (2, 32..33)]);
    finish(s);
}

#[test]
fn blocks_are_not_shared_before_they_are_computed() {
    let mut s = scheduler(64, 4, 20);
    add(&mut s, prompt(0, 40));
    add(&mut s, prompt(0, 40));
    assert_eq!(rows(&step(&mut s)), [(0, 0..20)]);
    let plan = step(&mut s);
    assert_eq!(rows(&plan), [(0, 20..40)]);
    assert_eq!(rows(&step(&mut s)), [(0, 40..41), (1, 32..40)]);
    finish(s);
}

#[test]
fn equal_prompts_that_come_together_are_computed_once() {
    let mut s = scheduler(64, 8, 100);
    add(&mut s, prompt(0, 40));
    add(&mut s, prompt(0, 40));
    add(&mut s, prompt(500, 20));
    // The third does not wait for the second.
    assert_eq!(rows(&step(&mut s)), [(0, 0..40), (2, 0..20)]);
    assert_eq!(rows(&step(&mut s)), [(0, 40..41), (2, 20..21), (1, 32..40)]);
    finish(s);
}

#[test]
fn a_short_common_start_is_not_waited_for() {
    let mut s = scheduler(64, 8, 200);
    add(&mut s, prompt(0, 40));
    let mut other = prompt(0, 80);
    other.prompt[20..].fill(9);
    add(&mut s, other);
    assert_eq!(rows(&step(&mut s)), [(0, 0..40), (1, 0..80)]);
    finish(s);
}

#[test]
fn nobody_waits_for_a_worse_class_or_for_one_that_left() {
    let mut s = scheduler(64, 8, 100);
    let slow = NewSequence {
        max_chunk: 20,
        ..prompt(0, 40)
    };
    let low = add(&mut s, of_class(Priority::Low, slow));
    assert_eq!(rows(&step(&mut s)), [(0, 0..20)]);
    let normal = add(&mut s, prompt(0, 40));
    let follower = add(&mut s, prompt(0, 40));
    // It shares the block that is there, but does not wait for the other one.
    let plan = step(&mut s);
    assert_eq!(plan.admitted[0].id, normal);
    assert_eq!(plan.admitted[0].cached, 16);
    s.remove(low);
    s.remove(normal);
    assert_eq!(step(&mut s).admitted[0].id, follower);
    finish(s);
}

#[test]
fn without_a_cache_nobody_waits() {
    let limits = Limits {
        sequences: 4,
        rows: 100,
    };
    let mut s = Scheduler::new(limits, BlockPool::new(64, false, false));
    add(&mut s, prompt(0, 40));
    add(&mut s, prompt(0, 40));
    assert_eq!(rows(&step(&mut s)), [(0, 0..40), (1, 0..40)]);
    finish(s);
}

#[test]
fn decoded_blocks_are_cached_too() {
    let mut s = scheduler(64, 4, 100);
    let first = add(&mut s, prompt(0, 10));
    for _ in 0..8 {
        step(&mut s);
    }
    let tokens = s.sequence(first).unwrap().tokens.clone();
    assert_eq!(tokens.len(), 18);
    s.remove(first);
    let again = NewSequence {
        prompt: tokens,
        ..prompt(0, 1)
    };
    add(&mut s, again);
    assert_eq!(step(&mut s).admitted[0].cached, 16);
    finish(s);
}

#[test]
fn followers_wait_for_their_leader_and_share_its_blocks() {
    let mut s = scheduler(64, 8, 20);
    let ids = s.add(prompt(0, 40), 3);
    assert_eq!(s.held_back(), 2);
    assert_eq!(rows(&step(&mut s)), [(ids[0].0, 0..20)]);
    assert_eq!(rows(&step(&mut s)), [(ids[0].0, 20..40)]);
    assert_eq!(s.held_back(), 0);
    assert_eq!(rows(&step(&mut s)), [(0, 40..41), (1, 32..40), (2, 32..40)]);
    finish(s);
}

#[test]
fn followers_of_a_removed_leader_are_not_forgotten() {
    let mut s = scheduler(64, 8, 20);
    let ids = s.add(prompt(0, 40), 2);
    s.remove(ids[0]);
    assert_eq!((s.held_back(), s.waiting()), (0, 1));
    assert_eq!(rows(&step(&mut s)), [(1, 0..20)]);
    finish(s);
}

#[test]
fn the_latest_of_the_lowest_class_is_preempted_and_comes_back() {
    let mut s = scheduler(4, 4, 100);
    let early = add(&mut s, prompt(0, 16));
    let late = add(&mut s, prompt(100, 16));
    let mut preempted = Vec::new();
    for _ in 0..40 {
        preempted.extend(step(&mut s).preempted);
        if s.sequence(early).unwrap().tokens.len() == 60 {
            break;
        }
    }
    assert_eq!(preempted, [late]);
    s.remove(early);
    let plan = step(&mut s);
    assert_eq!(plan.admitted[0].id, late);
    assert!(!plan.admitted[0].first_time);
    finish(s);
}

#[test]
fn a_better_class_takes_the_place_of_a_worse_one_but_not_of_its_own() {
    let mut s = scheduler(64, 1, 100);
    let low = add(&mut s, of_class(Priority::Low, prompt(0, 8)));
    step(&mut s);
    let normal = add(&mut s, prompt(100, 8));
    let plan = step(&mut s);
    assert_eq!(plan.preempted, [low]);
    assert_eq!(plan.admitted[0].id, normal);
    add(&mut s, prompt(200, 8));
    assert_eq!(step(&mut s).preempted, []);
    finish(s);
}

#[test]
fn a_prompt_that_is_scored_reads_no_cache_and_goes_in_small_chunks() {
    let mut s = scheduler(64, 4, 100);
    add(&mut s, prompt(0, 40));
    step(&mut s);
    let scored = NewSequence {
        max_chunk: 30,
        reads_cache: false,
        ..prompt(0, 40)
    };
    add(&mut s, scored);
    assert_eq!(rows(&step(&mut s)), [(0, 40..41), (1, 0..30)]);
    finish(s);
}

#[test]
fn blocks_for_a_draft_come_back_however_the_draft_ends() {
    let mut s = scheduler(8, 4, 100);
    let id = add(&mut s, prompt(0, 10));
    step(&mut s);
    let held = s.pool.held();
    let loan = s.lend(id, 3 * BLOCK_TOKENS).unwrap();
    assert_eq!(loan.room, 3 * BLOCK_TOKENS);
    assert_eq!(s.pool.held(), held + 3);
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _held_while_it_fails = loan;
        panic!("on purpose");
    }));
    assert!(unwound.is_err());
    step(&mut s);
    assert_eq!(s.pool.held(), held);
    // There are never more than the pool has, and one for a sequence that has left is no harm.
    let loan = s.lend(id, 100 * BLOCK_TOKENS).unwrap();
    assert!(loan.room < 8 * BLOCK_TOKENS);
    s.remove(id);
    drop(loan);
    assert_eq!(s.pool.held(), 0);
    assert!(s.lend(id, 1).is_none());
    finish(s);
}
