//! Thousands of simulated runs of the engine. `SIM_SEEDS` sets how many, `SIM_SEED` replays one.

use fencepost_lab::sim::{Sky, run};

fn seeds() -> std::ops::Range<u64> {
    let number = |key: &str| std::env::var(key).ok().map(|text| text.parse::<u64>().expect(key));
    match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(150),
    }
}

fn judge(sky: Sky, sessions_only: bool) {
    let (mut grants, mut losses) = (0, 0);
    for seed in seeds() {
        let report = run(seed, sky, sessions_only);
        let told = report.violations.join("\n");
        assert!(told.is_empty(), "SIM_SEED={seed} {sky:?} sessions_only={sessions_only}\n{told}");
        grants += report.grants;
        losses += report.losses;
    }
    println!("{sky:?} sessions_only={sessions_only}: {grants} grants, {losses} losses");
    assert!(grants > 0);
}

macro_rules! skies {
    ($($name:ident $sky:ident)*) => { $(
        mod $name {
            use super::*;
            #[test]
            fn per_claim() {
                judge(Sky::$sky, false);
            }
            #[test]
            fn sessions() {
                judge(Sky::$sky, true);
            }
        }
    )* };
}

skies! {
    calm Calm
    mild Mild
    storm Storm
    echoes Echoes
    freezes Freezes
    pauses Pauses
    takings Takings
    steps Steps
}

#[test]
fn a_seed_replays_exactly() {
    for sky in Sky::ALL {
        let (first, second) = (run(7, sky, false), run(7, sky, false));
        assert_eq!((first.digest, first.grants), (second.digest, second.grants), "{sky:?}");
        assert_ne!(first.digest, run(8, sky, false).digest);
    }
}

/// The skies are not empty: each lets happen what it is for.
#[test]
fn losses_happen_where_they_may() {
    for sky in [Sky::Storm, Sky::Freezes, Sky::Pauses, Sky::Takings, Sky::Steps] {
        assert!((0..40).map(|seed| run(seed, sky, false).losses).sum::<usize>() > 0, "{sky:?}");
    }
}
