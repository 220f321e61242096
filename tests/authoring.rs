//! Claims about authoring: what `tunebox new` writes builds and trains at once, and the same source gives the same bytes in
//! any folder of any user.
//!
//! Builds share one cargo folder, but where the claim is about folders. `BLESS=1` locks the template's dependencies anew.
#![cfg(target_os = "linux")]

use std::process::Command;

use serde_json::Value;
use tunebox_package::builtin;
use tunebox_package::template::SHAPES;

use crate::support::folders::lock;
use crate::support::golden::root;
use crate::support::workspace::{Workspace, text};

/// What the program says where it must be refused as a wrong use.
fn fail_as_wrong_use(place: &Workspace, words: &[&str]) -> String {
    text(&place.end(words, 2))
}

/// The component that the folder of a method builds to.
fn build(place: &Workspace, name: &str) -> Vec<u8> {
    place.succeed(&["build", name]);
    std::fs::read(place.path(&format!("{name}/{name}.wasm"))).unwrap()
}

#[test]
fn a_new_method_is_the_same_bytes_in_another_folder_of_another_user() {
    let here = Workspace::empty();
    let said = here.succeed(&["new", "calm"]);
    assert!(said.contains("cd calm; tunebox build; tunebox test; tunebox train --sample --method ."), "{said}");
    let bytes = build(&here, "calm");
    here.succeed(&["train", "--sample", "--method", "calm", "--set", "train.steps=2", "--name", "one"]);
    assert_eq!(here.metrics("runs/one").len(), 2);
    let (source, text) = (here.path("calm/src/lib.rs"), here.read("calm/src/lib.rs"));
    let changed = text.replace("        backward(&loss)?;\n", "").replace("\"accuracy\"]", "\"share\"]");
    let changed = changed.replace("Ok(settings)", "let spare = 1;\n        Ok(settings)");
    let line = changed.lines().position(|line| line.contains("add_metric(\"accuracy\"")).unwrap() + 1;
    std::fs::write(&source, changed).unwrap();
    let said = here.succeed(&["build", "calm"]);
    assert!(said.contains(&format!("Warning src/lib.rs:{line} reports `accuracy`, which `metrics`")), "{said}");
    assert!(said.contains("Warning the method never calls `backward`"), "{said}");
    assert!(said.contains("warning: unused variable: `spare`\n") && said.contains("with 1 warning\n"), "{said}");
    let again = here.succeed(&["--json", "build", "calm"]);
    let again: Value = serde_json::from_str(again.lines().next().unwrap()).unwrap();
    assert_eq!((&again["event"], &again["area"]), (&"warning".into(), &"build".into()), "{again}");
    assert!(again["place"].as_str().unwrap().starts_with("src/lib.rs:"), "{again}");
    std::fs::write(&source, text).unwrap();
    // The next version: the lock follows.
    let manifest = here.path("calm/Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("version = \"0.1.0\"", "version = \"0.2.0\"")).unwrap();
    assert!(build(&here, "calm") != bytes);
    // A description alone is in the next component as well.
    std::fs::write(&manifest, text.replace("What this method does, in a sentence", "Keeps calm")).unwrap();
    here.succeed(&["build", "calm"]);
    let said = here.succeed(&["inspect", "calm"]);
    assert!(said.contains("Keeps calm"), "{said}");
    std::fs::write(&manifest, text).unwrap();
    assert!(build(&here, "calm") == bytes, "the first version is not what it was");

    // Nothing is shared with the first folder, so nothing of it can be taken over.
    let mut elsewhere = Workspace::empty();
    elsewhere.target = concat!(env!("CARGO_TARGET_TMPDIR"), "/methods-elsewhere").into();
    elsewhere.succeed(&["new", "calm"]);
    assert!(build(&elsewhere, "calm") == bytes, "two folders, two components");
    let home = std::env::home_dir().unwrap();
    for place in [here.folder(), elsewhere.folder(), &here.target, &elsewhere.target, &home] {
        let place = place.to_str().unwrap().as_bytes();
        assert!(!bytes.windows(place.len()).any(|window| window == place), "a path of this machine is in the bytes");
    }
}

#[test]
fn a_method_begun_with_a_built_in_one_learns_the_same() {
    let place = Workspace::empty();
    for method in ["dpo", "kto", "grpo"] {
        let name = format!("my-{method}");
        place.succeed(&["new", &name, "--like", method]);
        place.succeed(&["build", &name]);
        let few = ["--set", "train.steps=2", "--name", method];
        place.succeed(&[&["-C", &name, "train", "run.toml"][..], &few[..]].concat());
        place.succeed(&[&["train", "--sample", "--method", method][..], &few[..]].concat());
        let (own, built_in) =
            (place.metrics(&format!("{name}/runs/{method}")), place.metrics(&format!("runs/{method}")));
        assert_eq!(own.len(), 2);
        assert_eq!(own, built_in, "{method}");
        // Whoever has it, and whatever lies beside it: that of the first method that learns from such records.
        let sampled = place.succeed(&["-C", &name, "train", "--sample", "--method", ".", "--dry-run"]);
        let first = if method == "dpo" { "cpo" } else { method };
        assert!(sampled.contains(&format!("runs/.sample/{first}.jsonl")), "{sampled}");
    }
}

#[test]
fn a_method_begun_with_a_shape_builds_and_trains_on_the_sample_without_a_change() {
    let place = Workspace::empty();
    for shape in SHAPES {
        let name = format!("my-{shape}");
        place.succeed(&["new", &name, "--shape", shape]);
        let built = place.succeed(&["build", &name]);
        assert!(!built.contains("Warning"), "{shape}: {built}");
        let few = ["--set", "train.steps=2", "--name", "few"];
        let trained = place.succeed(&[&["-C", &name, "train", "run.toml"][..], &few[..]].concat());
        assert!(trained.contains("Done 2 steps") && !trained.contains("Warning"), "{shape}: {trained}");
        place.succeed(&["-C", &name, "train", "--sample", "--method", ".", "--dry-run"]);
    }
}

#[test]
fn a_new_verifier_or_environment_builds_passes_its_tests_and_gives_the_rewards_of_a_run() {
    let place = Workspace::empty();
    for (kind, article) in [("verifier", "a"), ("environment", "an")] {
        let name = format!("my-{kind}");
        let said = place.succeed(&["new", &name, "--kind", kind]);
        assert!(said.contains(&format!("Created {name}/, {article} {kind}  (Cargo.lock, ")), "{said}");
        assert!(said.contains(&format!("cd {name}; tunebox build; tunebox test; tunebox train run.toml\n")), "{said}");
        let built = place.succeed(&["build", &name]);
        assert!(built.contains("Imports   (nothing else") && !built.contains("arning"), "{kind}: {built}");
        let tested = place.succeed(&["test", &name]);
        assert!(tested.contains("3 passed") && tested.contains(&format!("Passed the {kind}'s own tests")), "{tested}");
        let checked = place.succeed(&["check", &name]);
        let used = format!("of a run file with `use = \"{name}\"`");
        assert!(
            checked.to_lowercase().contains(&format!("{kind} {name} 0.1.0\n")) && checked.contains(&used),
            "{checked}"
        );
        let few = ["--set", "train.steps=2", "--name", "few"];
        let trained = place.succeed(&[&["-C", &name, "train", "run.toml"][..], &few[..]].concat());
        assert!(trained.contains("Done 2 steps") && !trained.contains("Warning"), "{kind}: {trained}");
        let reward = format!("reward-{name}-mean");
        let steps = place.metrics(&format!("{name}/runs/few"));
        let rewards: Vec<f64> = steps.iter().filter_map(|step| step[&reward].as_f64()).collect();
        assert!(rewards.len() == 2 && rewards.iter().any(|reward| *reward > 0.0), "{kind}: {rewards:?}");
    }
}

#[test]
fn a_verifier_begun_with_a_built_in_one_builds_with_what_it_depends_on() {
    let place = Workspace::empty();
    let said = place.succeed(&["new", "my-pattern", "--like", "pattern"]);
    assert!(said.contains("cd my-pattern; tunebox build; tunebox test\n"), "{said}");
    build(&place, "my-pattern");
    let inspected = place.succeed(&["inspect", "my-pattern"]);
    assert!(inspected.contains("my-pattern"), "{inspected}");
}

#[test]
fn every_beginning_is_a_folder_that_cargo_understands() {
    let place = Workspace::empty();
    let names = builtin::list().iter().chain(builtin::verifiers()).map(|built_in| Some(built_in.name));
    for like in names.chain([None]) {
        let name = like.map_or("calm".to_owned(), |like| format!("my-{like}"));
        let words = like.map_or(vec!["new", &name], |like| vec!["new", &name, "--like", like]);
        place.succeed(&words);
        let locked = place.path(&name).join("Cargo.lock").is_file();
        let mut cargo = Command::new("cargo");
        cargo.args(["metadata", "--format-version", "1"]).args(locked.then_some("--locked"));
        let output = cargo.current_dir(place.path(&name)).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_lock_of_the_template_is_what_cargo_makes_of_the_repository_s() {
    let place = Workspace::empty();
    place.succeed(&["new", "calm"]);
    let (folder, template) = (place.path("calm"), root().join("sdk/template/rust/Cargo.lock"));
    lock(&folder);
    let locked = std::fs::read_to_string(folder.join("Cargo.lock")).unwrap().replace("\"calm\"", "\"blank\"");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&template, &locked).unwrap();
    }
    let packages = |text: &str| {
        let mut packages: Vec<String> = text.split("[[package]]").skip(1).map(|part| part.trim().to_owned()).collect();
        packages.sort();
        packages
    };
    let kept = std::fs::read_to_string(&template).unwrap();
    assert_eq!(
        packages(&kept),
        packages(&locked),
        "`BLESS=1 cargo test --release --test program authoring::` locks anew"
    );
}

#[test]
fn what_cannot_be_begun_is_refused_and_leaves_nothing() {
    let place = Workspace::empty();
    for (words, told) in [
        (vec!["new", "CalmDpo"], "hint: `tunebox new calm-dpo`"),
        (vec!["new", "dpo"], "`dpo` is built in"),
        (vec!["new", "loop"], "keeps that word for itself"),
        (vec!["new", "../calm"], "hint: `tunebox new calm`"),
        (vec!["new", "calm", "--like", "dppo"], "did you mean `dpo`?"),
        (vec!["new", "calm", "--language", "cobol"], "invalid value 'cobol'"),
        (vec!["new", "calm", "--kind", "reward"], "invalid value 'reward'"),
        (vec!["new", "calm", "--kind", "verifier", "--like", "exact"], "cannot be used with '--like <METHOD>'"),
        (vec!["new", "calm", "--kind", "verifier", "--shape", "prompts"], "cannot be used with '--shape <SHAPE>'"),
    ] {
        let said = fail_as_wrong_use(&place, &words);
        assert!(said.contains(told), "{words:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(place.folder()).unwrap().count(), 0);
}

#[test]
fn a_folder_that_exists_is_left_as_it_is() {
    let place = Workspace::empty();
    place.succeed(&["new", "calm"]);
    place.write("calm/src/lib.rs", "//! Mine.\n");
    assert!(fail_as_wrong_use(&place, &["new", "calm"]).contains("nothing that exists is replaced"));
    assert!(fail_as_wrong_use(&place, &["-C", "calm", "new", "calmer", "--here"]).contains("exists"));
    assert_eq!(place.read("calm/src/lib.rs"), "//! Mine.\n");

    std::fs::create_dir(place.path("own")).unwrap();
    let said = place.succeed(&["-C", "own", "new", "calm", "--here"]);
    assert!(said.contains("Next tunebox build; tunebox test; tunebox train --sample --method ."), "{said}");
    assert!(place.path("own/src/lib.rs").is_file() && place.path("own/runs/.sample/model").is_dir());
}

#[test]
fn an_sdk_of_another_version_is_asked_for_in_vain() {
    let place = Workspace::empty();
    place.succeed(&["new", "calm"]);
    let manifest = place.read("calm/Cargo.toml");
    place.write("calm/Cargo.toml", &manifest.replace("\"0.1\"", "\"9.1\""));
    let said = fail_as_wrong_use(&place, &["build", "calm"]);
    assert!(said.contains("asks for version `9.1` of the SDK"), "{said}");
}

#[test]
fn what_building_means_is_said_once_of_a_folder_that_was_not_begun_here() {
    let place = Workspace::empty();
    place.succeed(&["new", "own"]);
    std::fs::create_dir_all(place.path("foreign/src")).unwrap();
    for folder in ["own", "foreign"] {
        std::fs::write(place.path(&format!("{folder}/Cargo.toml")), "[package]\n").unwrap();
    }
    let note = "building runs code of this folder on this machine";
    let noted =
        ["own", "foreign", "foreign"].map(|folder| fail_as_wrong_use(&place, &["build", folder]).contains(note));
    assert_eq!(noted, [false, true, false]);
}
