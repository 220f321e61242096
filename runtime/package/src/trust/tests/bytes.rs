//! Bytes and signatures that do not belong together are refused.

use super::*;

#[test]
fn other_bytes_under_a_pinned_version_are_refused_even_if_they_are_signed() {
    let (world, key) = (World::new(), key());
    let artifact = signed("calm-dpo", "0.1.0", &key);
    world.take(&artifact, PLACE);
    let other = resigned(other_bytes(&artifact), &key);
    let (found, locked) = (digest::sha256(&other.wasm), digest::sha256(&artifact.wasm));
    let wanted = |place: &str| {
        format!(
            "error[trust]: this package is not the one in the lock\n  --> calm-dpo@0.1.0 from {place}\n\
             why:  sha256 is {}…, tunebox.lock holds {}…\nkept: nothing was installed and nothing ran\n\
             hint: get it again; if it repeats, tell the publisher; a package of your own takes a new version\n",
            &found[..12],
            &locked[..12]
        )
    };
    assert_eq!(text(&world.refusal(&other, PLACE)), wanted(PLACE));
    let mirror = "mirror.example/me/calm-dpo:0.1.0";
    assert_eq!(text(&world.refusal(&other, mirror)), wanted(mirror));
    // What is no package at all any more is refused before it is read.
    let torn = Artifact { wasm: artifact.wasm[..20].to_vec(), signature: artifact.signature };
    assert_eq!(world.refusal(&torn, PLACE).to_string(), "this package is not the one in the lock");
}

#[test]
fn unsigned_bytes_are_refused_whatever_signature_is_with_them() {
    let (world, key) = (World::new(), key());
    let artifact = signed("calm-dpo", "0.1.0", &key);
    let other = Artifact { wasm: other_bytes(&artifact), signature: artifact.signature };
    let digest = digest::sha256(&other.wasm);
    assert_eq!(
        text(&world.refusal(&other, PLACE)),
        format!(
            "error[trust]: this package is not what was signed\n  --> calm-dpo@0.1.0 from {PLACE}\n\
             why:  sha256 is {}…, the signature of {} covers something else\n\
             kept: nothing was installed and nothing ran\nhint: get it again; if it repeats, tell the publisher\n",
            &digest[..12],
            key.signer()
        )
    );
}

#[test]
fn the_signature_of_another_package_is_refused() {
    let (world, key) = (World::new(), key());
    let other = signed("calm-dpo", "0.2.0", &key);
    let artifact = Artifact { signature: other.signature, ..plain("calm-dpo", "0.1.0") };
    assert_eq!(
        text(&world.refusal(&artifact, PLACE)),
        format!(
            "error[trust]: this is the signature of another package\n  --> calm-dpo@0.1.0 from {PLACE}\n\
             why:  it was made for `calm-dpo@0.2.0`\nkept: nothing was installed and nothing ran\n\
             hint: take package and signature of one and the same version\n"
        )
    );
}

#[test]
fn another_package_than_was_asked_for_is_refused() {
    let (world, key) = (World::new(), key());
    // An old version under a new tag is signed and right, and still not what was asked for.
    for artifact in [signed("calm-dpo", "0.0.9", &key), signed("loud-dpo", "0.1.0", &key)] {
        let title = Statement::of(&artifact.wasm).unwrap().title();
        assert_eq!(
            text(&world.refusal(&artifact, PLACE)),
            format!(
                "error[trust]: the registry returned another package than requested\n  --> {title} from {PLACE}\n\
                 why:  `{PLACE}` was requested, and the manifest in the package has another name or version\n\
                 kept: nothing was installed and nothing ran\nhint: tell the publisher, or request the package by its own name\n"
            )
        );
    }
}

#[test]
fn no_changed_byte_of_package_signature_or_lock_lets_other_bytes_in() {
    let (world, key) = (World::new(), key());
    let artifact = signed("calm-dpo", "0.1.0", &key);
    world.take(&artifact, PLACE);
    let lock = fs::read(world.lock()).unwrap();
    let fresh = World { home: world.home, project: tempfile::tempdir().unwrap() };
    let other = Artifact { wasm: other_bytes(&artifact), ..artifact.clone() };

    let mut wasm = artifact.wasm.clone();
    let mut text = artifact.signature.clone().unwrap().into_bytes();
    for change in [1, 0x20] {
        // A changed package, pinned or not.
        for place in 0..wasm.len() {
            wasm[place] ^= change;
            let changed = Artifact { wasm: wasm.clone(), signature: artifact.signature.clone() };
            assert!(fresh.open().admit(&changed, PLACE, Mode::Ask(&mut |_| true)).is_err(), "{change:x} at {place}");
            wasm[place] ^= change;
        }
        // A changed signature beside other bytes.
        for place in 0..text.len() {
            text[place] ^= change;
            if let Ok(signature) = String::from_utf8(text.clone()) {
                let changed = Artifact { wasm: other.wasm.clone(), signature: Some(signature) };
                assert!(
                    fresh.open().admit(&changed, PLACE, Mode::Ask(&mut |_| true)).is_err(),
                    "{change:x} at {place}"
                );
            }
            text[place] ^= change;
        }
        // A changed lock beside other bytes, with the signature of the right ones.
        for place in 0..lock.len() {
            let mut changed = lock.clone();
            changed[place] ^= change;
            fs::write(fresh.lock(), changed).unwrap();
            for mode in [Mode::Locked, Mode::Ask(&mut |_| true)] {
                let trust = Trust::with_keyring(fresh.home.path(), fresh.project.path(), None);
                assert!(
                    trust.map_or(true, |mut trust| trust.admit(&other, PLACE, mode).is_err()),
                    "{change:x} at {place}"
                );
            }
        }
        fs::remove_file(fresh.lock()).unwrap();
    }
}
