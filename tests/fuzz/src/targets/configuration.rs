//! `config.json` of a model, and the one that is written of what was read; and that of a reward model.

use std::path::Path;

use serde_json::Value;
use tunebox_model::configuration::Configuration;
use tunebox_model::reward::reward_weight_shapes;

use crate::Target;

pub(super) const TARGET: Target = Target { name: "configuration", run, longest: 8 << 10, quick: 3_000 };

/// A reward model has weights that can be counted, and one row of them for its one label. A model has sizes that weights can
/// be counted of, as many frequencies as pairs of features turn, and a `config.json` that names the same family. Or an error.
fn run(bytes: &[u8]) {
    let Ok(config) = serde_json::from_slice::<Value>(bytes) else { return };
    if let Ok(shapes) = reward_weight_shapes(&config, Path::new("config.json")) {
        let rows = shapes.iter().filter(|(name, _)| name == "classifier.weight" || name == "score.weight");
        assert_eq!(rows.map(|(_, shape)| shape[0]).sum::<usize>(), 1, "one label has one row");
        let count = |shape: &Vec<usize>| shape.iter().try_fold(1_usize, |product, side| product.checked_mul(*side));
        assert!(shapes.iter().all(|(_, shape)| count(shape).is_some_and(|count| count > 0)), "an absurd size");
    }
    let Ok(found) = Configuration::from_hugging_face(&config, Path::new("config.json")) else { return };
    assert!(found.parameter_count() > 0, "a model without weights");
    for rope in &found.ropes {
        for frequencies in [Some(rope.frequencies(found.rotated)), rope.long_frequencies(found.rotated)] {
            let sound = |frequency: &f64| frequency.is_finite() && *frequency > 0.0;
            assert!(frequencies.is_none_or(|all| all.len() == found.rotated / 2 && all.iter().all(sound)), "{rope:?}");
        }
    }
    assert_eq!(found.to_hugging_face()["model_type"], found.family.as_str());
}
