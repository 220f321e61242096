use tunebox_foundation::explain::{Exit, Explain};

use super::rules::MAX_ENTRIES;
use super::*;

fn manifest(edit: impl FnOnce(&mut serde_json::Value)) -> Result<Manifest, Error> {
    let mut json = serde_json::json!({
        "name": "calm", "version": "0.1.0", "description": "Calms", "shape": "preference", "interface": "0.2.0",
        "metrics": ["loss"],
        "settings": [{ "name": "beta", "doc": "How strongly", "kind": "number", "default": 1, "above": 0.0 }],
    });
    edit(&mut json);
    parse(json.to_string().as_bytes())
}

#[test]
fn a_default_becomes_a_value_of_the_settings_kind() {
    assert_eq!(manifest(|_| ()).unwrap().settings[0].default, Some(Value::Number(1.0)));
}

#[test]
fn a_method_gets_micro_batches_unless_it_asks_for_windows() {
    assert_eq!(manifest(|_| ()).unwrap().batch, Cadence::Micro);
    assert_eq!(manifest(|json| json["batch"] = "window".into()).unwrap().batch, Cadence::Window);
    assert!(manifest(|json| json["batch"] = "epoch".into()).is_err());
}

#[test]
fn a_default_outside_its_range_is_refused() {
    let error = manifest(|json| json["settings"][0]["default"] = 0.0.into()).unwrap_err();
    assert!(error.to_string().contains("the default of `beta`"), "{error}");
}

#[test]
fn an_unknown_field_is_refused() {
    assert!(manifest(|json| json["network"] = true.into()).is_err());
}

#[test]
fn text_that_would_move_the_cursor_is_refused() {
    assert!(manifest(|json| json["description"] = "\u{1b}[2J".into()).is_err());
}

#[test]
fn a_version_that_goes_on_with_other_words_is_refused() {
    for version in ["", "0.1.0, signed: yes, by Anna", "0.1.0 known", &"1".repeat(65)] {
        let error = manifest(|json| json["version"] = version.into()).unwrap_err();
        assert!(error.to_string().contains("a version is like `1.2.3`"), "{error}");
    }
    for version in ["1.2.3", "0.1", "1.0.0-rc.1+build"] {
        manifest(|json| json["version"] = version.into()).unwrap();
    }
}

#[test]
fn text_that_turns_the_direction_of_writing_or_hides_is_refused_wherever_it_stands() {
    for sign in ["\u{202e}", "\u{2066}", "\u{200b}", "\u{feff}", "\u{e0041}", "\u{7}", "\u{9b}"] {
        assert!(manifest(|json| json["description"] = format!("mild{sign}dlim").into()).is_err());
        assert!(manifest(|json| json["license"] = sign.into()).is_err());
        assert!(manifest(|json| json["settings"][0]["doc"] = sign.into()).is_err());
        assert!(manifest(|json| json["name"] = format!("calm{sign}").into()).is_err());
        let texts = serde_json::json!([{ "name": "how", "doc": "How", "kind": "text", "default": sign }]);
        assert!(manifest(|json| json["settings"] = texts.clone()).is_err());
        let texts = serde_json::json!([{ "name": "how", "doc": "How", "kind": "texts", "default": [sign] }]);
        assert!(manifest(|json| json["settings"] = texts.clone()).is_err());
    }
}

#[test]
fn a_field_with_a_hostile_name_is_refused_in_words_that_do_nothing() {
    let error = manifest(|json| json["\u{1b}[2J\u{202e}"] = true.into()).unwrap_err().to_string();
    assert!(error.contains("\\u{1b}[2J\\u{202e}"), "{error}");
    assert!(!error.contains(['\u{1b}', '\u{202e}']), "{error:?}");
}

#[test]
fn a_metric_that_would_pass_for_a_number_of_the_run_is_refused() {
    for name in
        ["step", "closing", "validation-loss", "used", "reward-number-mean", "reward-a-b-std", "reward-x-failed"]
    {
        let error = manifest(|json| json["metrics"] = serde_json::json!(["loss", name])).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
    let own = ["reward", "reward-std", "reward-mean", "frac-reward-zero-std"];
    manifest(|json| json["metrics"] = serde_json::json!(own)).unwrap();
}

#[test]
fn a_name_that_is_a_path_is_refused() {
    assert!(manifest(|json| json["name"] = "../calm".into()).is_err());
}

#[test]
fn a_setting_listed_twice_is_refused() {
    let twice = |json: &mut serde_json::Value| {
        let setting = json["settings"][0].clone();
        json["settings"] = serde_json::json!([setting, setting]);
    };
    assert!(manifest(twice).unwrap_err().to_string().contains("twice"));
}

#[test]
fn another_track_of_the_contract_is_refused_by_its_version() {
    for other in ["0.3.0", "1.1.0", "0.0.9"] {
        let error = manifest(|json| json["interface"] = other.into()).unwrap_err();
        assert_eq!(error.to_string(), format!("`calm` needs `tunebox:method@{other}`, this program keeps 0.2.0"));
        assert_eq!(error.exit(), Exit::Sandbox);
    }
    let newer = manifest(|json| json["interface"] = "0.3.0".into()).unwrap_err();
    assert!(newer.hint().unwrap().contains("a newer tunebox"), "{:?}", newer.hint());
    let older = manifest(|json| json["interface"] = "0.0.9".into()).unwrap_err();
    assert!(older.hint().unwrap().contains("the SDK of this version"), "{:?}", older.hint());
}

#[test]
fn a_later_version_of_the_track_is_taken_unless_its_manifest_says_more_than_this_program_knows() {
    assert!(manifest(|json| json["interface"] = "0.2.7".into()).is_ok());
    let error = manifest(|json| {
        json["interface"] = "0.2.7".into();
        json["telepathy"] = true.into();
    })
    .unwrap_err();
    assert_eq!(error.to_string(), "`calm` needs `tunebox:method@0.2.7`, this program keeps 0.2.0");
    assert!(error.why().unwrap().contains("telepathy"), "{:?}", error.why());
}

#[test]
fn what_is_no_released_version_of_the_contract_is_refused() {
    for wrong in ["0.2", "0.2.", "0.2.x", "0.2.0-rc.1", "0.2.0+new", "00.2.0", ""] {
        let error = manifest(|json| json["interface"] = wrong.into()).unwrap_err().to_string();
        assert!(error.contains("a version is like `0.2.0`"), "{wrong}: {error}");
    }
}

#[test]
fn more_settings_than_the_cap_are_refused() {
    let many = |json: &mut serde_json::Value| {
        let settings: Vec<_> = (0..=MAX_ENTRIES)
            .map(|index| serde_json::json!({ "name": format!("s{index}"), "doc": "d", "kind": "boolean" }))
            .collect();
        json["settings"] = settings.into();
    };
    assert!(manifest(many).is_err());
}

#[test]
fn a_manifest_nested_without_end_is_an_error() {
    let deep = "[".repeat(MAX_BYTES);
    assert!(parse(deep.as_bytes()).is_err());
}
