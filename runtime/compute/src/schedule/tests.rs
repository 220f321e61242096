//! The factors against those that the `transformers` library gives for 10 steps with 2 of warm-up.

use std::f64::consts::FRAC_1_SQRT_2;

use super::*;

/// Asserts the factors of steps 0 … 10.
fn follows(name: &str, expected: [f64; 11]) {
    let schedule: Schedule = name.parse().unwrap();
    for (step, expected) in expected.iter().enumerate() {
        let factor = schedule.factor(step as u64, 2, 10);
        assert!((factor - expected).abs() < 5e-8, "{name} at step {step}: {factor}, not {expected}");
    }
}

#[test]
fn a_line_falls_to_zero_after_the_warm_up() {
    follows("linear", [0.0, 0.5, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0]);
}

#[test]
fn a_cosine_falls_to_zero_after_the_warm_up() {
    let half = [0.0, 0.5, 1.0, 0.9619398, 0.8535534, 0.6913417, 0.5, 0.3086583, 0.1464466, 0.03806023, 0.0];
    follows("cosine", half);
}

#[test]
fn two_cosines_restart_half_way() {
    let twice = [0.0, 0.5, 1.0, 0.853553391, 0.5, 0.146446609, 1.0, 0.853553391, 0.5, 0.146446609, 0.0];
    follows("cosine-with-restarts:2", twice);
}

#[test]
fn a_polynomial_falls_with_its_power() {
    follows("polynomial:2", [0.0, 0.5, 1.0, 0.765625, 0.5625, 0.390625, 0.25, 0.140625, 0.0625, 0.015625, 0.0]);
}

#[test]
fn constants_differ_only_in_the_warm_up() {
    follows("constant", [1.0; 11]);
    follows("constant-with-warmup", [0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
}

#[test]
fn an_inverse_square_root_is_measured_in_warm_ups() {
    let roots = [0.0, 0.5, 1.0, 0.8164966, FRAC_1_SQRT_2, 0.6324555, 0.5773503, 0.5345225, 0.5, 0.4714045, 0.4472136];
    follows("inverse-sqrt", roots);
}

#[test]
fn a_floor_is_where_the_cosine_ends() {
    let floored =
        [0.0, 0.5, 1.0, 0.96574579, 0.868198052, 0.722207545, 0.55, 0.377792455, 0.231801948, 0.13425421, 0.1];
    follows("cosine-with-min-rate:0.1", floored);
}

#[test]
fn a_line_ends_at_its_floor() {
    // `get_polynomial_decay_schedule_with_warmup` with power 1 and a tenth of the peak as `lr_end`.
    let floored = [0.0, 0.5, 1.0, 0.8875, 0.775, 0.6625, 0.55, 0.4375, 0.325, 0.2125, 0.1];
    follows("linear-with-min-rate:0.1", floored);
}

#[test]
fn a_share_of_the_run_is_rounded_up_to_updates() {
    // `TrainingArguments(warmup_steps=share).get_warmup_steps(total)` of transformers 5.
    for (share, total, updates) in [(0.0, 100, 0), (0.05, 100, 5), (0.05, 101, 6), (0.1, 30, 3), (0.03, 7, 1)] {
        assert_eq!(Warmup::Share(share).updates(total), updates, "{share} of {total}");
    }
    assert_eq!(Warmup::Updates(7).updates(3), 7);
}

#[test]
fn a_warm_up_one_step_ahead_never_stands_still() {
    let schedule = "cosine-warmup-with-min-rate:0.1".parse::<Schedule>().unwrap();
    let ahead = [0.5, 1.0, 0.96574579, 0.868198052, 0.722207545, 0.55, 0.377792455, 0.231801948, 0.13425421, 0.1];
    for (step, expected) in ahead.iter().enumerate() {
        assert!((schedule.factor(step as u64, 2, 10) - expected).abs() < 5e-9, "step {step}");
    }
}

#[test]
fn a_stable_phase_ends_in_a_short_decay() {
    let late = [0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.853553391, 0.5, 0.146446609, 0.0];
    follows("warmup-stable-decay:0.4", late);
}

#[test]
fn steps_past_the_end_of_the_run_keep_a_finite_factor() {
    for name in Schedule::names() {
        let factor = name.parse::<Schedule>().unwrap().factor(25, 2, 10);
        assert!((0.0..=1.0).contains(&factor), "{name}: {factor}");
    }
}

#[test]
fn every_name_reads_back_as_it_was_written() {
    for name in Schedule::names() {
        let schedule: Schedule = name.parse().unwrap();
        assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule);
    }
}

#[test]
fn unknown_names_and_numbers_out_of_range_are_refused() {
    let error = "lineal".parse::<Schedule>().unwrap_err().to_string();
    assert!(error.contains("`cosine-with-min-rate:0.1`") && error.contains("`warmup-stable-decay:0.1`"), "{error}");
    for text in ["lineal", "linear:2", "cosine-with-min-rate:1.5", "polynomial:x", "polynomial:NaN", ""] {
        assert!(text.parse::<Schedule>().is_err(), "{text}");
    }
}
