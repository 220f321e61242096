use toml::{Table, Value};

use tunebox_foundation::explain::Explain;

use super::*;
use crate::builtin;

fn made(like: Option<&str>) -> Template {
    Template::new("calm", Language::Rust, like.map_or(Start::Shape("supervised"), Start::Like)).unwrap()
}

fn text<'a>(template: &'a Template, path: &str) -> &'a str {
    std::str::from_utf8(&template.files[path]).unwrap()
}

#[test]
fn nothing_of_the_template_s_own_name_is_left() {
    let template = made(None);
    for path in [".gitignore", "Cargo.toml", "Cargo.lock", "README.md", "src/lib.rs"] {
        assert!(!text(&template, path).contains(PLACEHOLDER), "{path}");
    }
    let manifest: Table = text(&template, "Cargo.toml").parse().unwrap();
    assert_eq!(manifest["package"]["name"].as_str(), Some("calm"));
    assert!(text(&template, "Cargo.lock").contains("name = \"calm\"\n"));
    assert!(text(&template, ".gitignore").contains("/calm.wasm\n"));
}

#[test]
fn every_built_in_method_and_verifier_can_be_begun_with() {
    for source in builtin::list().iter().chain(builtin::verifiers()) {
        let template = made(Some(source.name));
        let manifest: Table = text(&template, "Cargo.toml").parse().unwrap();
        let dependencies = manifest["dependencies"].as_table().unwrap();
        assert_eq!(dependencies["tunebox"]["path"].as_str(), Some(".tunebox/sdk/rust"), "{}", source.name);
        assert!(dependencies.values().all(|entry| entry.get("workspace").is_none()), "{}", source.name);
        assert_eq!(template.files.contains_key("Cargo.lock"), dependencies.len() == 1, "{}", source.name);
        let theirs: Table = source.source_text("Cargo.toml").parse().unwrap();
        assert_eq!(manifest["package"]["description"], theirs["package"]["description"]);
        assert_eq!(text(&template, "src/lib.rs"), source.source_text("src/lib.rs"));
        let page = text(&template, "README.md");
        assert!(page.starts_with("# calm\n") && page.contains("`.tunebox/` holds the SDK"), "{page}");
        let verifier = builtin::find_verifier(source.name).is_some();
        assert_eq!(page.contains("use = \"../calm\""), verifier, "{page}");
    }
}

#[test]
fn every_shape_has_a_template_in_every_language_and_a_page() {
    for shape in SHAPES {
        for (language, source, declared) in [
            (Language::Rust, "src/lib.rs", format!("shape: \"{shape}\"")),
            (Language::Python, "src/calm.py", format!("shape=\"{shape}\"")),
        ] {
            let template = Template::new("calm", language, Start::Shape(shape)).unwrap();
            assert!(text(&template, source).contains(&declared), "{shape}");
            let of_instructions = ["harm", "nstructions"];
            let left = of_instructions.iter().find(|word| text(&template, source).contains(**word));
            assert!(shape == "instructions" || left.is_none(), "{shape}: {left:?}");
            let page = text(&template, "README.md");
            assert!(page.contains(&format!("the shape `{shape}`")) && !page.contains('{'), "{page}");
        }
    }
}

#[test]
fn a_verifier_and_an_environment_have_a_template_in_every_language() {
    for (start, kind) in [(Start::Verifier, "verifier"), (Start::Environment, "environment")] {
        for (language, manifest, source, tests) in [
            (Language::Rust, "Cargo.toml", "src/lib.rs", "src/lib.rs"),
            (Language::Python, "pyproject.toml", "src/my_check.py", "tests/test_my_check.py"),
        ] {
            let template = Template::new("my-check", language, start).unwrap();
            assert!(text(&template, source).contains(&format!("What this {kind} does, in a sentence.")), "{source}");
            let tests = text(&template, tests);
            assert!(tests.contains("use super::*;") || tests.contains("from my_check import"), "{tests}");
            let manifest = text(&template, manifest);
            assert!(
                manifest.contains(&format!("description = \"What this {kind} does, in a sentence\"")),
                "{manifest}"
            );
            let takes_feature = manifest.contains("features = [\"environment\"]");
            assert_eq!(takes_feature, kind == "environment" && language == Language::Rust, "{manifest}");
            let page = text(&template, "README.md");
            assert!(page.starts_with("# my-check\n") && page.contains("use = \"../my-check\""), "{page}");
            assert!(page.contains("\n## The folder\n") && !page.contains("method does"), "{page}");
            assert!(template.own_files().all(|path| !text(&template, path).contains(PLACEHOLDER)));
        }
    }
}

/// Adds nothing to a folder.
fn nothing(_: &Path) -> Result<(), Error> {
    Ok(())
}

#[test]
fn a_method_that_needs_records_alone_gets_a_test_of_its_own() {
    let template = made(Some("dpo"));
    assert!(text(&template, "tests/bench.rs").contains("use calm::Preference;\n"));
    assert!(!made(Some("grpo")).files.contains_key("tests/bench.rs"), "it needs a verifier");
    assert!(!made(Some("exact")).files.contains_key("tests/bench.rs"), "it is a verifier");
}

#[test]
fn the_locked_versions_are_those_of_the_repository() {
    let versions = |text: &str| -> Vec<(String, String)> {
        let lock: Table = text.parse().unwrap();
        let word = |package: &Value, key: &str| package[key].as_str().unwrap().to_owned();
        let packages = lock["package"].as_array().unwrap().iter();
        packages.map(|package| (word(package, "name"), word(package, "version"))).collect()
    };
    let repository = include_str!("../../../../Cargo.lock");
    let known = versions(repository);
    for package in versions(text(&made(None), "Cargo.lock")).iter().filter(|(name, _)| name != "calm") {
        assert!(
            known.contains(package),
            "{package:?}: `BLESS=1 cargo test --release --test program authoring::` locks anew"
        );
    }
}

#[test]
fn an_author_compiles_no_generator_of_bindings() {
    let template = made(None);
    for generator in ["wit-bindgen-rust", "wit-component", "wasmparser"] {
        assert!(!text(&template, "Cargo.lock").contains(&format!("\"{generator}\"")), "{generator}");
    }
    let manifest: Table = text(&template, ".tunebox/sdk/rust/Cargo.toml").parse().unwrap();
    let features = &manifest["target"]["cfg(target_arch = \"wasm32\")"]["dependencies"]["wit-bindgen"]["features"];
    assert_eq!(features.as_array().unwrap(), &[Value::from("realloc")]);
    let bindings = text(&template, ".tunebox/sdk/rust/src/bindings.rs");
    assert!(!bindings.contains("generate!({"));
    for part in ["pub mod tensor {", "as export_component;", "pub mod judging {", "pub mod verify {"] {
        assert!(bindings.contains(part), "{part}");
    }
}

#[test]
fn a_folder_appears_whole_and_never_over_another() {
    let parent = tempfile::tempdir().unwrap();
    let folder = made(None).write(parent.path(), nothing).unwrap();
    assert_eq!(fs::read_to_string(folder.join("src/lib.rs")).unwrap(), text(&made(None), "src/lib.rs"));
    assert!(folder.join(sources::FOLDER).join("sdk/rust/Cargo.toml").is_file());
    let left: Vec<_> = fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["calm"]);

    fs::write(folder.join("src/lib.rs"), "mine").unwrap();
    let error = made(Some("dpo")).write(parent.path(), nothing).unwrap_err();
    assert_eq!(error.to_string(), format!("`{}` exists", folder.display()));
    assert_eq!(fs::read_to_string(folder.join("src/lib.rs")).unwrap(), "mine");
}

#[test]
fn a_folder_does_not_appear_without_what_is_put_into_it() {
    let parent = tempfile::tempdir().unwrap();
    let full = |_: &Path| Err(Error::file("written", "runs")(std::io::ErrorKind::StorageFull.into()));
    assert!(made(None).write(parent.path(), full).is_err());
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);

    let add = |folder: &Path| fs::write(folder.join("more"), "").map_err(Error::file("written", folder));
    let folder = made(None).write(parent.path(), add).unwrap();
    assert!(folder.join("more").is_file() && folder.join("src/lib.rs").is_file());
}

#[test]
fn files_come_into_a_folder_that_has_none_of_them() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("README.md"), "mine").unwrap();
    assert!(made(None).write_here(folder.path(), nothing).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was added");

    fs::rename(folder.path().join("README.md"), folder.path().join("NOTES.md")).unwrap();
    made(None).write_here(folder.path(), nothing).unwrap();
    assert!(folder.path().join("src/lib.rs").is_file());
    assert!(folder.path().join("NOTES.md").is_file());
}

#[test]
fn an_unknown_method_is_answered_with_the_one_that_exists() {
    let error = Template::new("calm", Language::Rust, Start::Like("dppo")).unwrap_err();
    assert_eq!(error.hint().unwrap(), "did you mean `dpo`?");
}

#[test]
fn a_method_in_python_has_a_module_of_its_name_as_python_writes_names() {
    let template = Template::new("calm-dpo", Language::Python, Start::Shape("supervised")).unwrap();
    for (path, bytes) in &template.files {
        assert!(!path.contains(PLACEHOLDER) && !String::from_utf8_lossy(bytes).contains(PLACEHOLDER), "{path}");
    }
    let project: Table = text(&template, "pyproject.toml").parse().unwrap();
    assert_eq!(project["project"]["name"].as_str(), Some("calm-dpo"));
    assert!(template.files.contains_key("src/calm_dpo.py"));
    assert!(text(&template, "README.md").contains("`src/calm_dpo.py`"));
    for (path, bytes) in files_for_editors() {
        assert_eq!(template.files.get(&format!(".tunebox/{path}")), Some(bytes), "{path}");
    }
    assert!(text(&template, ".gitignore").lines().any(|line| line == "/.tunebox"));
    let error = Template::new("calm", Language::Python, Start::Like("dpo")).unwrap_err();
    assert_eq!(error.to_string(), "`dpo` is written in Rust");
}
