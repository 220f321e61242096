//! The contract and the package `tunebox`, as they travel in the program.

/// The files of `wit`, by name.
pub(super) const CONTRACT: &[(&str, &str)] = &[
    ("data.wit", include_str!("../../../../../wit/data.wit")),
    ("hidden.wit", include_str!("../../../../../wit/hidden.wit")),
    ("learn.wit", include_str!("../../../../../wit/learn.wit")),
    ("model.wit", include_str!("../../../../../wit/model.wit")),
    ("patch.wit", include_str!("../../../../../wit/patch.wit")),
    ("reward.wit", include_str!("../../../../../wit/reward.wit")),
    ("run.wit", include_str!("../../../../../wit/run.wit")),
    ("sample.wit", include_str!("../../../../../wit/sample.wit")),
    ("tensor.wit", include_str!("../../../../../wit/tensor.wit")),
    ("text.wit", include_str!("../../../../../wit/text.wit")),
    ("types.wit", include_str!("../../../../../wit/types.wit")),
    ("weights.wit", include_str!("../../../../../wit/weights.wit")),
    (WORLD, include_str!("../../../../../wit/world.wit")),
];

/// The file of the contract that lists what a method may import.
pub(super) const WORLD: &str = "world.wit";

/// The files of `sdk/python/tunebox`, by name.
pub(super) const PACKAGE: &[(&str, &str)] = &[
    ("__init__.py", include_str!("../../../../../sdk/python/tunebox/__init__.py")),
    ("component.py", include_str!("../../../../../sdk/python/tunebox/component.py")),
    ("declaration.py", include_str!("../../../../../sdk/python/tunebox/declaration.py")),
    ("describe.py", include_str!("../../../../../sdk/python/tunebox/describe.py")),
    ("errors.py", include_str!("../../../../../sdk/python/tunebox/errors.py")),
    ("loss.py", include_str!("../../../../../sdk/python/tunebox/loss.py")),
    ("model.py", include_str!("../../../../../sdk/python/tunebox/model.py")),
    ("pair.py", include_str!("../../../../../sdk/python/tunebox/pair.py")),
    ("run.py", include_str!("../../../../../sdk/python/tunebox/run.py")),
    ("settings.py", include_str!("../../../../../sdk/python/tunebox/settings.py")),
    ("tensor.py", include_str!("../../../../../sdk/python/tunebox/tensor.py")),
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_contract_and_of_the_package_travels() {
        for (folder, ending, list) in [("wit", "wit", CONTRACT), ("sdk/python/tunebox", "py", PACKAGE)] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
            let mut names: Vec<String> = std::fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some_and(|found| found == ending))
                .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
                .collect();
            names.sort();
            assert_eq!(names, list.iter().map(|(name, _)| *name).collect::<Vec<_>>(), "{folder}");
        }
    }
}
