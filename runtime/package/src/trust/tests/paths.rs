//! Packages that are named by a path, checked against the lock and an organization's list.

use std::borrow::Cow;

use super::*;
use crate::{Package, read_manifest};

/// A package as it is read from a path.
fn at_path(artifact: &Artifact) -> Package {
    let statement = Statement::of(&artifact.wasm).unwrap();
    let signature = artifact.signature.as_ref();
    Package {
        manifest: read_manifest(&artifact.wasm).unwrap(),
        imports: Vec::new(),
        digest: statement.sha256,
        bytes: Cow::Owned(artifact.wasm.clone()),
        origin: "./calm-dpo.wasm".into(),
        signature: artifact.signature.clone(),
        signer: signature.map(|text| crate::signature::Signed::verify(&artifact.wasm, text).unwrap()),
        source: None,
    }
}

/// The message of the error about a package from a path; `None` if it is accepted.
fn said(world: &World, artifact: &Artifact, only_locked: bool) -> Option<String> {
    check_path_package(&at_path(artifact), world.project.path(), None, only_locked).err().map(|error| error.to_string())
}

#[test]
fn a_name_that_the_lock_pins_means_that_package_from_a_path_too() {
    let (world, mine, theirs) = (World::new(), key(), key());
    let artifact = signed("calm-dpo", "0.2.0", &mine);
    world.take(&artifact, "registry.example/me/calm-dpo:0.2.0");
    for (other, what) in [
        (plain("calm-dpo", "0.3.0"), "this package is not signed"),
        (signed("calm-dpo", "0.3.0", &theirs), "another key signs it than before"),
        (resigned(other_bytes(&artifact), &mine), "this package is not the one in the lock"),
        (signed("calm-dpo", "0.1.0", &mine), "this version is older than one that was used here"),
    ] {
        assert_eq!(said(&world, &other, false).as_deref(), Some(what));
    }
    // The same bytes, whether their signature lies beside them or not, and what follows them by the same hand.
    let bare = Artifact { signature: None, ..artifact.clone() };
    for same in [&artifact, &bare, &signed("calm-dpo", "0.3.0", &mine), &plain("loud-orpo", "1.0.0")] {
        assert_eq!(said(&world, same, false), None);
    }
}

#[test]
fn a_path_is_taken_by_the_lock_alone_only_if_it_holds_these_bytes() {
    let (world, key) = (World::new(), key());
    let artifact = signed("calm-dpo", "0.1.0", &key);
    world.take(&artifact, PLACE);
    assert_eq!(said(&world, &artifact, true), None);
    for other in [signed("calm-dpo", "0.2.0", &key), plain("loud-orpo", "1.0.0")] {
        let error = check_path_package(&at_path(&other), world.project.path(), None, true).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.exit()), ("it is not in the lock", Exit::Trust));
        assert_eq!(
            error.why().unwrap(),
            "it was named by its path, and `--locked` takes only the bytes that tunebox.lock holds"
        );
        assert!(error.location().unwrap().ends_with("from ./calm-dpo.wasm"));
    }
}

#[test]
fn a_package_that_an_organizations_list_names_is_signed_by_its_keys_from_a_path_too() {
    let (world, ours, theirs) = (World::new(), key(), key());
    let file = world.home.path().join("acme.toml");
    let named = organization::list(&[("registry.example/acme", &ours)]) + "packages = [\"calm-dpo\"]\n";
    fs::write(&file, named).unwrap();
    let told = |artifact: &Artifact, only_locked: bool| {
        let held = check_path_package(&at_path(artifact), world.project.path(), Some(&file), only_locked);
        held.err().map(|error| error.to_string())
    };
    for free in [signed("calm-dpo", "0.1.0", &ours), plain("calm-dpo", "0.1.0"), signed("loud-orpo", "0.1.0", &theirs)]
    {
        assert_eq!(told(&free, false), None);
    }
    let other = signed("calm-dpo", "0.1.0", &theirs);
    assert_eq!(told(&other, false).as_deref(), Some("another key signs it than before"));
    // Nor does a lock that came with the project speak for it.
    world.take(&other, "/media/stick");
    assert_eq!(told(&other, true).as_deref(), Some("another key signs it than before"));
}
