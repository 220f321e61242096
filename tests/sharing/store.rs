//! What was pulled: which name means it, and when it runs.

use std::fs;
use std::path::Path;

use super::scene::Scene;
use crate::support::renamed::renamed;

#[test]
fn a_package_in_the_store_runs_only_as_it_was_pulled_and_locked() {
    let scene = Scene::new();
    let Scene { person, .. } = &scene;
    let method = ["train", "--sample", "--method", "calm-tone@0.2.0", "--set", "train.steps=1", "--locked"];
    let lock = person.path("project/tunebox.lock");
    let written = fs::read_to_string(&lock).unwrap();

    fs::remove_file(&lock).unwrap();
    person.assert_refused(&method, "it is not in the lock");
    let digest = written.lines().find_map(|line| line.strip_prefix("sha256 = ")).unwrap();
    fs::write(&lock, written.replace(digest, &format!("\"{}\"", "0".repeat(64)))).unwrap();
    person.assert_refused(&method, "this package is not the one in the lock");
    fs::write(&lock, &written).unwrap();

    let blob = person.path(&format!("home/store/blobs/sha256/{}", digest.trim_matches('"')));
    let bytes = fs::read(&blob).unwrap();
    let mut changed = bytes.clone();
    *changed.last_mut().unwrap() ^= 1;
    replace(&blob, &changed);
    person.assert_refused(&method, "the package is not what was kept");
    person.assert_refused(&["verify", "calm-tone@0.2.0"], "the package is not what was kept");
    replace(&blob, &bytes);

    assert!(
        person.path("cache/compiled").read_dir().map_or(true, |mut entries| entries.next().is_none()),
        "it was compiled"
    );
    let output = person.train("calm-tone@0.2.0", &["--locked", "--name", "run"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run: toml::Table = fs::read_to_string(person.path("project/runs/run/run.lock")).unwrap().parse().unwrap();
    let locked: toml::Table = written.parse().unwrap();
    for key in ["sha256", "signer", "source"] {
        assert_eq!(run["method"][key], locked["package"][0][key], "{key}");
    }
    person.succeed("project", &["verify", "runs/run", "--replay"]);
}

/// Exchanges a file that is write-protected.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_name_means_what_the_project_pulled_and_never_reaches_the_network() {
    let scene = Scene::new();
    let Scene { person, .. } = &scene;
    for method in ["calm-tone", "calm-tone@0.2.0", &scene.named("me/calm-tone", "0.2.0")] {
        let output = person.train(method, &["--dry-run"]);
        assert!(output.status.success(), "{method}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let later = scene.offer("me/calm-tone", "0.3.0", &scene.publisher.publish("calm-tone", "0.3.0", "calm\n"));
    for (method, what) in [
        (later.as_str(), format!("`{later}` was not pulled yet")),
        ("calm-tone@0.3.0", "there is no package `calm-tone@0.3.0` here".to_owned()),
        ("calm-tonne", "there is no method `calm-tonne`".to_owned()),
    ] {
        let output = person.train(method, &["--dry-run"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.starts_with(&format!("error[package]: {what}\n")), "{told}");
    }
    // A bare name goes up with what is pulled; the run that was made keeps its version.
    person.succeed("project", &["pull", &later]);
    assert!(person.train("calm-tone", &["--name", "run"]).status.success());
    let run = fs::read_to_string(person.path("project/runs/run/run.toml")).unwrap();
    assert!(run.contains("use = \"calm-tone@0.3.0\""), "{run}");
}

#[test]
fn a_bare_name_means_what_the_lock_pins_and_no_file_of_that_name() {
    let scene = Scene::new();
    let Scene { person, .. } = &scene;
    let later = scene.offer("me/calm-tone", "0.3.0", &scene.publisher.publish("calm-tone", "0.3.0", "calm\n"));
    fs::create_dir(person.path("other")).unwrap();
    person.succeed("other", &["pull", &later]);
    let inspected = |folder: &str| person.succeed(folder, &["inspect", "calm-tone"]);
    assert!(inspected("other").contains("calm-tone 0.3.0"));
    fs::write(person.path("project/calm-tone"), "no component").unwrap();
    assert!(inspected("project").contains("calm-tone 0.2.0"));

    // Nor does another version stand in for it, where the pinned one is not here.
    let lock = person.path("project/tunebox.lock");
    let pinned = fs::read_to_string(&lock).unwrap();
    fs::write(&lock, pinned.replace("\nversion = \"0.2.0\"", "\nversion = \"0.1.0\"")).unwrap();
    let told = person.fail(&["inspect", "calm-tone"], 2);
    assert!(told.contains(&format!("hint: `tunebox pull {}`", scene.named("me/calm-tone", "0.1.0"))), "{told}");
    fs::write(&lock, pinned).unwrap();

    fs::remove_file(person.path("project/calm-tone")).unwrap();
    person.succeed("project", &["new", "calm-tone", "--like", "lora"]);
    let told = person.fail(&["inspect", "calm-tone"], 2);
    assert!(told.contains("calm-tone@0.2.0") && told.contains("the folder `./calm-tone`"), "{told}");
}

#[test]
fn a_bare_name_means_what_is_built_in_and_with_a_version_what_is_in_the_store() {
    let scene = Scene::new();
    let built_in = tunebox_package::builtin::find("lora").unwrap().bytes;
    let name = scene.offer("me/lora", "0.1.0", &scene.publisher.sign(built_in, "The same, signed\n"));
    scene.person.succeed("project", &["pull", &name]);
    let signer = |method: &str| {
        let words = ["train", "--sample", "--method", method, "--dry-run", "--json"];
        let output = scene.person.command("project", &words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        told["plan"]["signer"].clone()
    };
    assert_eq!(signer("lora"), serde_json::Value::Null);
    assert_eq!(signer("lora@0.1.0"), scene.publisher.key.signer().key.as_str());
}

#[test]
fn a_verifier_from_the_store_judges_a_run_under_the_same_rules() {
    let scene = Scene::new();
    let verifier = scene.publisher.sign(&renamed("verifiers/number", "plain-sum", "0.1.0"), "Sums\n");
    scene.person.succeed("project", &["pull", &scene.offer("me/plain-sum", "0.1.0", &verifier)]);
    let judged = ["--set", "verifier.0.use=plain-sum@0.1.0", "--locked", "--name", "judged"];
    let output = scene.person.train("rlvr", &judged);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = fs::read_to_string(scene.person.path("project/runs/judged/run.lock")).unwrap();
    let run: toml::Table = run.parse().unwrap();
    assert_eq!(run["verifier"][0]["signer"].as_str(), Some(scene.publisher.key.signer().key.as_str()));

    fs::remove_file(scene.person.path("project/tunebox.lock")).unwrap();
    let words = ["train", "--sample", "--method", "rlvr", "--set", "verifier.0.use=plain-sum@0.1.0", "--locked"];
    scene.person.assert_refused(&words, "it is not in the lock");
}

#[test]
fn one_name_from_two_sources_must_be_said_in_full() {
    let scene = Scene::new();
    let Scene { person, publisher, .. } = &scene;
    let package = publisher.publish("calm-tone", "0.2.0", "calm\n");
    person.hold("calm-tone-0.2.0.wasm", &package);
    fs::create_dir(person.path("stick")).unwrap();
    person.succeed("project", &["push", "calm-tone-0.2.0.wasm", "../stick"]);
    person.succeed("project", &["pull", "../stick"]);

    let output = person.train("calm-tone@0.2.0", &["--dry-run"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("error[package]: `calm-tone` is the name of several packages here"), "{told}");
    assert!(told.contains("me/calm-tone") && told.contains("stick"), "{told}");
    let full = scene.named("me/calm-tone", "0.2.0");
    assert!(person.train(&full, &["--dry-run"]).status.success());
}

#[test]
#[cfg(unix)]
fn a_home_that_others_may_change_is_looked_at_and_trusted_with_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let Scene { person, .. } = &Scene::new();
    for (folder, own) in [("home", 0o700), ("home/store", 0o700), ("home/publishers.toml", 0o644)] {
        let path = person.path(folder);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let told = person.succeed("project", &["list", "--packages"]);
        assert!(told.contains("calm-tone@0.2.0"), "{told}");
        let train = ["train", "--sample", "--method", "calm-tone@0.2.0", "--set", "train.steps=1"];
        for words in [&["verify", "calm-tone@0.2.0"][..], &train] {
            let output = person.tunebox(words);
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                !output.status.success() && told.contains(&format!("others may write into `{}`", path.display())),
                "{words:?}: {told}"
            );
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(own)).unwrap();
    }
    person.succeed("project", &["verify", "calm-tone@0.2.0"]);
}
