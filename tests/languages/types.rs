//! The types of a method in Python, which `mypy` checks where it is installed.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;
use tunebox_package::build::python::{check_types, find_tools};

use super::python::require_compiler;
use crate::support::absent::absent;
use crate::support::golden::root;

/// A folder with this source of a method.
fn folder(source: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/typed.py"), source).unwrap();
    let project = "[project]\nname = \"typed\"\nversion = \"0.1.0\"\ndescription = \"A test\"\n";
    fs::write(folder.path().join("pyproject.toml"), project).unwrap();
    folder
}

#[test]
#[ignore = "needs mypy"]
fn a_type_error_is_a_warning_at_its_line_and_the_sources_of_the_repository_have_none() {
    let found = |source: &str| match check_types(folder(source).path()) {
        Ok(warnings) => warnings,
        Err(reason) => absent("mypy", &reason),
    };
    let wrong = "from tunebox import Tensor, backward, judge, weights\n\n\ndef step(x: Tensor) -> None:\n    \
                 backward(x.minimum(0.0).maximum(x))\n    weights.read_rows(weights.Role.QUERY, 0, 0, 1)\n    backward(0.5)\n";
    let warnings = found(wrong);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].place.as_deref(), Some("src/typed.py:7:14"), "{warnings:?}");
    assert!(warnings[0].message.contains("expected \"Tensor\""), "{warnings:?}");
    let shapes = fs::read_dir(root().join("sdk/template/shapes")).unwrap().map(|shape| shape.unwrap().path());
    let templates = shapes.map(|shape| shape.join("method.py"));
    for path in templates.chain([root().join("examples/10-python/src/dpo_python.py")]) {
        let warnings = found(&fs::read_to_string(&path).unwrap());
        assert!(warnings.is_empty(), "{}: {warnings:?}", path.display());
    }
    let page = fs::read_to_string(root().join("sdk/python/COOKBOOK.md")).unwrap();
    let blocks: Vec<&str> = page.split("```python\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    assert!(blocks.len() > 4, "{page}");
    let warnings = found(&blocks.join("\n"));
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
#[ignore = "needs componentize-py"]
fn a_missing_mypy_is_told_and_is_no_error() {
    require_compiler();
    let (folder, tools) = (folder("backward: str = 3\n"), find_tools(None).unwrap());
    let programs = folder.path().join(".venv/bin");
    fs::create_dir_all(&programs).unwrap();
    symlink(tools.componentize, programs.join("componentize-py")).unwrap();
    symlink(tools.python, programs.join("python3")).unwrap();
    let reason = check_types(folder.path()).unwrap_err();
    assert!(reason.contains("`pip install mypy`"), "{reason}");
}
