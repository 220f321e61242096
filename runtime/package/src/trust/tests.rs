mod files;

use std::fs;

use tempfile::TempDir;
use tunebox_compute::explain::{Exit, Explain};

use super::judgement::today;
use super::*;
use crate::signature::{SecretKey, sign, tests::key};
use crate::statement::tests::package;
use crate::{builtin, pack, section};

const PLACE: &str = "registry.example/me/calm-dpo:0.1.0";

/// A machine and a project on it.
struct World {
    home: TempDir,
    project: TempDir,
}

impl World {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), project: tempfile::tempdir().unwrap() }
    }

    fn open(&self) -> Trust {
        Trust::with_keyring(self.home.path(), self.project.path(), None).unwrap()
    }

    /// Takes a package with a yes to every question, and writes it down.
    fn take(&self, artefact: &Artefact, source: &str) {
        let mut trust = self.open();
        trust.admit(artefact, source, Mode::Ask(&mut |_| true)).unwrap();
        trust.commit().unwrap();
    }

    /// The refusal of a package, although every question would get a yes.
    fn refusal(&self, artefact: &Artefact, source: &str) -> TrustError {
        self.open().admit(artefact, source, Mode::Ask(&mut |_| true)).unwrap_err()
    }

    fn lock(&self) -> PathBuf {
        self.project.path().join(lock::FILE)
    }

    fn known(&self) -> PathBuf {
        self.home.path().join(publishers::FILE)
    }
}

fn plain(name: &str, version: &str) -> Artefact {
    Artefact { wasm: package(name, version), signature: None }
}

fn signed(name: &str, version: &str, key: &SecretKey) -> Artefact {
    resigned(package(name, version), key)
}

fn resigned(wasm: Vec<u8>, key: &SecretKey) -> Artefact {
    let signature = sign(&Statement::of(&wasm).unwrap(), key).unwrap();
    Artefact { wasm, signature: Some(signature) }
}

/// Another package of the same name and version.
fn other_bytes(artefact: &Artefact) -> Vec<u8> {
    let mut wasm = artefact.wasm.clone();
    section::append(&mut wasm, "more", b"code");
    wasm
}

/// All that is said about a refusal, line by line.
fn text(error: &TrustError) -> String {
    assert_eq!(error.exit(), Exit::Trust);
    let explained = error.explanation();
    let line = |mark: &str, text: Option<String>| text.map(|text| format!("{mark}{text}\n")).unwrap_or_default();
    format!(
        "error[{}]: {}\n{}{}{}{}",
        explained.area,
        explained.what,
        line("  --> ", explained.place),
        line("why:  ", explained.why),
        line("kept: ", explained.kept),
        line("hint: ", explained.hint),
    )
}

#[test]
fn the_first_use_asks_and_the_second_does_not() {
    let (world, key) = (World::new(), key());
    let artefact = signed("calm-dpo", "0.1.0", &key);
    let (mut trust, mut asked) = (world.open(), Vec::new());
    let admitted = trust.admit(
        &artefact,
        PLACE,
        Mode::Ask(&mut |question| {
            asked.push(question.clone());
            true
        }),
    );
    assert_eq!(admitted.unwrap().signer.as_ref(), Some(key.signer()));
    trust.commit().unwrap();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].prefix.as_str(), &asked[0].signer), ("registry.example/me", key.signer()));

    let mut nobody = |question: &Question| -> bool { panic!("asked about {question:?}") };
    let admitted = world.open().admit(&artefact, PLACE, Mode::Ask(&mut nobody)).unwrap();
    assert_eq!(admitted.first_seen, Some(today()));
    // Neither for a newer version, nor for another package of the same namespace.
    let newer = signed("calm-dpo", "0.2.0", &key);
    let admitted = world.open().admit(&newer, "registry.example/me/calm-dpo:0.2.0", Mode::Ask(&mut nobody)).unwrap();
    assert_eq!(admitted.previous.as_deref(), Some("0.1.0"));
    let sibling = signed("loud-orpo", "1.0.0", &key);
    world.open().admit(&sibling, "registry.example/me/loud-orpo:1.0.0", Mode::Ask(&mut nobody)).unwrap();
}

#[test]
fn what_was_taken_is_written_down_and_nothing_without_a_commit() {
    let (world, key) = (World::new(), key());
    let artefact = signed("calm-dpo", "0.1.0", &key);
    world.open().admit(&artefact, PLACE, Mode::Ask(&mut |_| true)).unwrap();
    assert!(!world.lock().exists() && !world.known().exists());
    world.take(&artefact, PLACE);
    let (signer, digest) = (key.signer(), digest::sha256(&artefact.wasm));
    assert_eq!(
        fs::read_to_string(world.lock()).unwrap(),
        format!(
            "# The packages that this project uses, pinned: `tunebox` writes it. Keep it with the project.\nschema = 1\n\n\
             [[package]]\nname = \"calm-dpo\"\nversion = \"0.1.0\"\nsource = \"registry.example/me/calm-dpo\"\n\
             sha256 = \"{digest}\"\nsigner = \"{signer}\"\ninterface = \"0.1.0\"\nhighest = \"0.1.0\"\n"
        )
    );
    assert_eq!(
        fs::read_to_string(world.known()).unwrap(),
        format!(
            "# Whose signatures this machine takes, and for which names: `tunebox` adds a signer that you accept.\n\
             # An entry that is taken out is asked about again.\nschema = 1\n\n[[publisher]]\n\
             prefix = \"registry.example/me\"\nkey = \"{signer}\"\nfirst-seen = \"{}\"\nsource = \"{PLACE}\"\n\
             packages = [\"calm-dpo\"]\n",
            today()
        )
    );
}

#[test]
fn a_signer_whom_nobody_accepts_is_refused_with_the_command_that_would() {
    let (world, key) = (World::new(), key());
    let artefact = signed("calm-dpo", "0.1.0", &key);
    let error = world.open().admit(&artefact, PLACE, Mode::Ask(&mut |_| false)).unwrap_err();
    let signer = key.signer();
    assert_eq!(
        text(&error),
        format!(
            "error[trust]: nobody here has accepted its signer\n  --> calm-dpo@0.1.0 from {PLACE}\n\
             why:  {signer} signs for `registry.example/me` and is not known on this machine\n\
             kept: nothing was installed and nothing ran\n\
             hint: compare the key with the one that the publisher shows, then `tunebox pull {PLACE} --yes`\n"
        )
    );
}

#[test]
fn other_bytes_under_a_pinned_version_are_refused_even_if_they_are_signed() {
    let (world, key) = (World::new(), key());
    let artefact = signed("calm-dpo", "0.1.0", &key);
    world.take(&artefact, PLACE);
    let other = resigned(other_bytes(&artefact), &key);
    let (found, locked) = (digest::sha256(&other.wasm), digest::sha256(&artefact.wasm));
    let wanted = |place: &str| {
        format!(
            "error[trust]: this package is not the one in the lock\n  --> calm-dpo@0.1.0 from {place}\n\
             why:  sha256 is {}…, tunebox.lock holds {}…\nkept: nothing was installed and nothing ran\n\
             hint: pull it again; if it repeats, tell the publisher; a package of your own takes a new version\n",
            &found[..12],
            &locked[..12]
        )
    };
    assert_eq!(text(&world.refusal(&other, PLACE)), wanted(PLACE));
    let mirror = "mirror.example/me/calm-dpo:0.1.0";
    assert_eq!(text(&world.refusal(&other, mirror)), wanted(mirror));
    // What is no package at all any more is refused before it is read.
    let torn = Artefact { wasm: artefact.wasm[..20].to_vec(), signature: artefact.signature };
    assert_eq!(world.refusal(&torn, PLACE).to_string(), "this package is not the one in the lock");
}

#[test]
fn bytes_that_nobody_signed_are_refused_whatever_signature_is_with_them() {
    let (world, key) = (World::new(), key());
    let artefact = signed("calm-dpo", "0.1.0", &key);
    let other = Artefact { wasm: other_bytes(&artefact), signature: artefact.signature };
    let digest = digest::sha256(&other.wasm);
    assert_eq!(
        text(&world.refusal(&other, PLACE)),
        format!(
            "error[trust]: this package is not what was signed\n  --> calm-dpo@0.1.0 from {PLACE}\n\
             why:  sha256 is {}…, the signature of {} covers something else\n\
             kept: nothing was installed and nothing ran\nhint: pull it again; if it repeats, tell the publisher\n",
            &digest[..12],
            key.signer()
        )
    );
}

#[test]
fn the_signature_of_another_package_is_refused() {
    let (world, key) = (World::new(), key());
    let other = signed("calm-dpo", "0.2.0", &key);
    let artefact = Artefact { signature: other.signature, ..plain("calm-dpo", "0.1.0") };
    assert_eq!(
        text(&world.refusal(&artefact, PLACE)),
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
    for artefact in [signed("calm-dpo", "0.0.9", &key), signed("loud-dpo", "0.1.0", &key)] {
        let title = Statement::of(&artefact.wasm).unwrap().title();
        assert_eq!(
            text(&world.refusal(&artefact, PLACE)),
            format!(
                "error[trust]: the registry gave another package than was asked for\n  --> {title} from {PLACE}\n\
                 why:  `{PLACE}` was asked for, and a package says itself what it is\n\
                 kept: nothing was installed and nothing ran\nhint: tell the publisher, or ask for it by its own name\n"
            )
        );
    }
}

#[test]
fn an_unsigned_package_comes_in_from_a_path_and_from_no_registry() {
    let world = World::new();
    let artefact = plain("calm-dpo", "0.1.0");
    assert_eq!(
        text(&world.refusal(&artefact, PLACE)),
        format!(
            "error[trust]: this package is not signed\n  --> calm-dpo@0.1.0 from {PLACE}\n\
             why:  anybody who reaches the registry could have put it there; only a local path may give an unsigned one\n\
             kept: nothing was installed and nothing ran\n\
             hint: ask the publisher to sign it: `tunebox pack --sign KEY`, then `tunebox push`\n"
        )
    );
    world.take(&artefact, "/media/stick");
    assert_eq!(world.open().lock().find("calm-dpo").unwrap().signer, None);
}

#[test]
fn a_package_that_was_signed_before_does_not_come_unsigned() {
    let (world, key) = (World::new(), key());
    world.take(&signed("calm-dpo", "0.1.0", &key), PLACE);
    let error = world.refusal(&plain("calm-dpo", "0.2.0"), "/media/stick");
    assert_eq!(
        text(&error),
        format!(
            "error[trust]: this package is not signed\n  --> calm-dpo@0.2.0 from /media/stick\nwhy:  {} signed it before\n\
             kept: nothing was installed and nothing ran\n\
             hint: use the signed one; to go on without, take `calm-dpo` out of tunebox.lock\n",
            key.signer()
        )
    );
}

#[test]
fn another_key_than_the_locked_one_is_refused() {
    let (world, mine, theirs) = (World::new(), key(), key());
    world.take(&signed("calm-dpo", "0.1.0", &mine), PLACE);
    let newer = "elsewhere.example/me/calm-dpo:0.2.0";
    assert_eq!(
        text(&world.refusal(&signed("calm-dpo", "0.2.0", &theirs), newer)),
        format!(
            "error[trust]: another key signs it than before\n  --> calm-dpo@0.2.0 from {newer}\n\
             why:  tunebox.lock pins `calm-dpo` to {}, this one is signed by {}\n\
             kept: nothing was installed and nothing ran\n\
             hint: ask the publisher, not by way of the registry; if the new key is theirs, take `calm-dpo` out of tunebox.lock\n",
            mine.signer(),
            theirs.signer()
        )
    );
}

#[test]
fn another_key_than_the_known_one_of_a_namespace_is_refused_in_every_project() {
    let (world, mine, theirs) = (World::new(), key(), key());
    world.take(&signed("calm-dpo", "0.1.0", &mine), PLACE);
    let elsewhere = World { home: world.home, project: tempfile::tempdir().unwrap() };
    let source = "registry.example/me/loud-orpo:1.0.0";
    assert_eq!(
        text(&elsewhere.refusal(&signed("loud-orpo", "1.0.0", &theirs), source)),
        format!(
            "error[trust]: another key signs it than before\n  --> loud-orpo@1.0.0 from {source}\n\
             why:  `registry.example/me` is known since {} by {}, this one is signed by {}\n\
             kept: nothing was installed and nothing ran\n\
             hint: ask the publisher, not by way of the registry; if the new key is theirs, take `registry.example/me` out of {}\n",
            today(),
            mine.signer(),
            theirs.signer(),
            elsewhere.known().display()
        )
    );
}

#[test]
fn an_older_version_than_the_highest_is_refused() {
    let (world, key) = (World::new(), key());
    for version in ["0.9.0", "0.10.0-beta.2"] {
        world.take(&signed("calm-dpo", version, &key), &format!("registry.example/me/calm-dpo:{version}"));
    }
    let source = "registry.example/me/calm-dpo:0.9.1";
    assert_eq!(
        text(&world.refusal(&signed("calm-dpo", "0.9.1", &key), source)),
        format!(
            "error[trust]: this version is older than one that was used here\n  --> calm-dpo@0.9.1 from {source}\n\
             why:  tunebox.lock has seen 0.10.0-beta.2, and an old version brings its mended flaws back\n\
             kept: nothing was installed and nothing ran\n\
             hint: ask for 0.10.0-beta.2 or later; to go back on purpose, take `calm-dpo` out of tunebox.lock\n"
        )
    );
    world.take(&signed("calm-dpo", "0.10.0", &key), "registry.example/me/calm-dpo:0.10.0");
}

#[test]
fn a_name_like_that_of_another_signers_package_is_refused() {
    let (world, mine, theirs) = (World::new(), key(), key());
    world.take(&signed("calm-dpo", "0.1.0", &mine), PLACE);
    let (source, artefact) = ("other.example/you/ca1m-dpo:0.1.0", signed("ca1m-dpo", "0.1.0", &theirs));
    let wanted = |why: &str| {
        format!(
            "error[trust]: its name looks like `calm-dpo`\n  --> ca1m-dpo@0.1.0 from {source}\nwhy:  {why}\n\
             kept: nothing was installed and nothing ran\nhint: did you mean `calm-dpo`?\n"
        )
    };
    assert_eq!(
        text(&world.refusal(&artefact, source)),
        wanted(
            "that is a package of registry.example/me/calm-dpo in tunebox.lock, and this one is not by the same hand"
        )
    );
    let elsewhere = World { home: world.home, project: tempfile::tempdir().unwrap() };
    assert_eq!(
        text(&elsewhere.refusal(&artefact, source)),
        wanted("that is a package of the publisher `registry.example/me`, and this one is not by the same hand")
    );
    // The same hand may call its packages as it likes.
    elsewhere.take(&signed("ca1m-dpo", "0.1.0", &mine), "registry.example/me/ca1m-dpo:0.1.0");
}

#[test]
fn a_name_like_that_of_a_built_in_method_is_refused_unless_it_is_that_method() {
    let (world, key) = (World::new(), key());
    let error = world.refusal(&signed("l0ra", "0.1.0", &key), "registry.example/me/l0ra:0.1.0");
    assert_eq!(
        text(&error),
        "error[trust]: its name looks like `lora`\n  --> l0ra@0.1.0 from registry.example/me/l0ra:0.1.0\n\
         why:  that is built into tunebox, and this one is not by the same hand\n\
         kept: nothing was installed and nothing ran\nhint: did you mean `lora`?\n"
    );
    let error = world.refusal(&signed("dpo", "9.0.0", &key), "registry.example/me/dpo:9.0.0");
    assert_eq!(error.to_string(), "its name looks like `dpo`");
    let packed = pack::pack(builtin::find("dpo").unwrap().bytes, Some("# DPO\n")).unwrap();
    let version = Statement::of(&packed).unwrap().version;
    world.take(&resigned(packed, &key), &format!("registry.example/me/dpo:{version}"));
}

#[test]
fn locked_takes_what_the_lock_holds_without_asking_and_nothing_else() {
    let (world, key) = (World::new(), key());
    let artefact = signed("calm-dpo", "0.1.0", &key);
    world.take(&artefact, PLACE);
    // A machine that has never seen the signer takes it by the project's word.
    let fresh = World { home: tempfile::tempdir().unwrap(), project: world.project };
    let before = fs::read(fresh.lock()).unwrap();
    let mut trust = fresh.open();
    assert_eq!(trust.admit(&artefact, PLACE, Mode::Locked).unwrap().signer.as_ref(), Some(key.signer()));
    trust.commit().unwrap();
    assert_eq!(fs::read(fresh.lock()).unwrap(), before);
    assert!(!fresh.known().exists());

    let newer = "registry.example/me/calm-dpo:0.2.0";
    let error = fresh.open().admit(&signed("calm-dpo", "0.2.0", &key), newer, Mode::Locked).unwrap_err();
    assert_eq!(
        text(&error),
        format!(
            "error[trust]: it is not in the lock\n  --> calm-dpo@0.2.0 from {newer}\n\
             why:  tunebox.lock holds version 0.1.0, and `--locked` takes nothing else\n\
             kept: nothing was installed and nothing ran\n\
             hint: the same command without `--locked` adds it, and asks where it must\n"
        )
    );
    let other = "registry.example/me/loud-orpo:1.0.0";
    let error = fresh.open().admit(&signed("loud-orpo", "1.0.0", &key), other, Mode::Locked).unwrap_err();
    let wanted = "`--locked` takes only what tunebox.lock holds, from the signer that it names";
    assert_eq!(error.why().unwrap(), wanted);
}

#[test]
fn an_organisations_list_answers_for_its_names_and_refuses_others_there() {
    let (world, ours, theirs) = (World::new(), key(), key());
    let list = world.home.path().join("acme.toml");
    let entry =
        |prefix: &str, key: &SecretKey| format!("[[publisher]]\nprefix = \"{prefix}\"\nkey = \"{}\"\n", key.signer());
    let next = key();
    let text =
        format!("schema = 1\n{}{}", entry("registry.example/acme", &ours), entry("registry.example/acme", &next));
    fs::write(&list, text).unwrap();
    let open = || Trust::with_keyring(world.home.path(), world.project.path(), Some(&list)).unwrap();
    let mut nobody = |question: &Question| -> bool { panic!("asked about {question:?}") };
    let source = "registry.example/acme/tools/calm-dpo:0.1.0";
    // Any of the keys of a prefix is good, so that one can follow another.
    for key in [&ours, &next] {
        open().admit(&signed("calm-dpo", "0.1.0", key), source, Mode::Ask(&mut nobody)).unwrap();
    }
    let refused = open().admit(&signed("calm-dpo", "0.1.0", &theirs), source, Mode::Ask(&mut nobody)).unwrap_err();
    assert_eq!(refused.to_string(), "another key signs it than before");
    assert!(refused.hint().unwrap().ends_with(&format!("take `registry.example/acme` out of {}", list.display())));
    // A neighbour whose name merely begins alike is not covered.
    let neighbour = "registry.example/acmes/calm-dpo:0.1.0";
    open().admit(&signed("calm-dpo", "0.1.0", &theirs), neighbour, Mode::Ask(&mut |_| true)).unwrap();
    let missing = Trust::with_keyring(world.home.path(), world.project.path(), Some(Path::new("/no/such/list.toml")));
    assert!(missing.unwrap_err().to_string().starts_with("cannot read"));
}

#[test]
fn a_stick_with_a_known_publishers_package_raises_no_question_unless_the_name_is_anothers() {
    let (world, mine, theirs) = (World::new(), key(), key());
    world.take(&signed("calm-dpo", "0.1.0", &mine), PLACE);
    world.take(&signed("loud-orpo", "0.1.0", &theirs), "registry.example/you/loud-orpo:0.1.0");
    let elsewhere = World { home: world.home, project: tempfile::tempdir().unwrap() };
    let mut asked = 0;
    let mut count = |_: &Question| {
        asked += 1;
        true
    };
    let mut trust = elsewhere.open();
    trust.admit(&signed("calm-dpo", "0.3.0", &mine), "/media/stick", Mode::Ask(&mut count)).unwrap();
    trust.admit(&signed("loud-orpo", "0.3.0", &mine), "/media/stick", Mode::Ask(&mut count)).unwrap();
    assert_eq!(asked, 1);
}

#[test]
fn no_changed_byte_of_package_signature_or_lock_lets_other_bytes_in() {
    let (world, key) = (World::new(), key());
    let artefact = signed("calm-dpo", "0.1.0", &key);
    world.take(&artefact, PLACE);
    let lock = fs::read(world.lock()).unwrap();
    let fresh = World { home: world.home, project: tempfile::tempdir().unwrap() };
    let other = Artefact { wasm: other_bytes(&artefact), ..artefact.clone() };

    let mut wasm = artefact.wasm.clone();
    let mut text = artefact.signature.clone().unwrap().into_bytes();
    for change in [1, 0x20] {
        // A changed package, pinned or not.
        for place in 0..wasm.len() {
            wasm[place] ^= change;
            let changed = Artefact { wasm: wasm.clone(), signature: artefact.signature.clone() };
            assert!(fresh.open().admit(&changed, PLACE, Mode::Ask(&mut |_| true)).is_err(), "{change:x} at {place}");
            wasm[place] ^= change;
        }
        // A changed signature beside other bytes.
        for place in 0..text.len() {
            text[place] ^= change;
            if let Ok(signature) = String::from_utf8(text.clone()) {
                let changed = Artefact { wasm: other.wasm.clone(), signature: Some(signature) };
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
