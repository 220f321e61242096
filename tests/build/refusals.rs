//! What cannot be built says why, and where.

use tunebox_foundation::explain::Explain;
use tunebox_package::build::{self, Options};

use super::METHOD;
use crate::support::folders::method_folder;

#[test]
fn a_mistake_in_a_method_is_shown_with_its_line() {
    let folder = method_folder("calm", &METHOD.replace("self.half", "self.halve"));
    let error = build::compile(folder.path(), &Options::default(), &mut |_| {}).unwrap_err();
    let line = METHOD.lines().position(|line| line.contains("self.half")).unwrap() + 1;
    assert_eq!(error.to_string(), "no field `halve` on type `&mut Calm` [E0609]");
    assert!(error.location().unwrap().starts_with(&format!("src/lib.rs:{line}:")), "{:?}", error.location());
    let output = error.explanation().output.unwrap();
    assert!(output.contains("self.halve") && output.contains("half"), "{output}");
}

#[test]
fn a_default_that_is_no_choice_does_not_compile() {
    let folder = method_folder("calm", &METHOD.replace("\"gentle\"", "\"rough\""));
    let error = build::compile(folder.path(), &Options::default(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("the default is none of the choices"), "{error}");
}

#[test]
fn a_default_outside_its_range_is_one_error_with_its_line_before_anything_is_written() {
    let folder = method_folder("calm", &METHOD.replace("default = 0.5", "default = 1.5"));
    let error = build::build(folder.path(), &Options::default(), &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "the default is 1.5, it must be at most 1.0");
    let line = METHOD.lines().position(|line| line.contains("default = 0.5")).unwrap() + 1;
    assert!(error.location().unwrap().starts_with(&format!("src/lib.rs:{line}:")), "{:?}", error.location());
    let output = error.explanation().output.unwrap();
    assert!(!output.contains("is not satisfied") && !output.contains("errors"), "{output}");
    assert!(!folder.path().join("calm.wasm").exists());
}

#[test]
fn a_crate_without_a_method_is_told_what_is_missing() {
    let folder = method_folder("calm", "//! Nothing.\npub use tunebox::Tensor;\n");
    let error = build::compile(folder.path(), &Options::default(), &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "the crate compiles, but it declares no method");
}

#[test]
fn a_method_that_imports_something_else_is_refused() {
    let clock = "#[link(wasm_import_module = \"env\")]\nunsafe extern \"C\" { safe fn clock() -> f32; }\n";
    let folder = method_folder("calm", &format!("{}{clock}", METHOD.replace("self.half", "self.half * clock()")));
    let error = build::compile(folder.path(), &Options::default(), &mut |_| {}).unwrap_err();
    let what = error.to_string();
    assert!(what == "the compiled method does not fit the contract" || what.ends_with("which no host gives"), "{what}");
    assert!(error.why().unwrap().contains("env"), "{:?}", error.why());
}
