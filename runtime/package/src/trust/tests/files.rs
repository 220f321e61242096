//! The two files: edited by hand, torn, and written by many commands at once.

use std::thread;

use super::*;

/// The location and the message of the error about a file.
fn complaint(error: &Error) -> String {
    let explained = error.explanation();
    let snippet = explained.snippet.map(|line| format!(" | {}", line.text)).unwrap_or_default();
    let place = explained.location.unwrap();
    let place = place.rsplit('/').next().unwrap();
    format!("{place}: {}{snippet}", explained.what)
}

#[test]
fn what_was_taken_is_written_down_and_nothing_without_a_commit() {
    let (world, key) = (World::new(), key());
    let artifact = signed("calm-dpo", "0.1.0", &key);
    world.open().admit(&artifact, PLACE, Mode::Ask(&mut |_| true)).unwrap();
    assert!(!world.lock().exists() && !world.known().exists());
    world.take(&artifact, PLACE);
    let (signer, digest) = (key.signer(), digest::sha256(&artifact.wasm));
    assert_eq!(
        fs::read_to_string(world.lock()).unwrap(),
        format!(
            "# The packages that this project uses, pinned: `tunebox` writes it. Keep it with the project.\nschema = 1\n\n\
             [[package]]\nname = \"calm-dpo\"\nversion = \"0.1.0\"\nsource = \"registry.example/me/calm-dpo\"\n\
             sha256 = \"{digest}\"\nsigner = \"{signer}\"\ninterface = \"0.2.0\"\nhighest = \"0.1.0\"\n"
        )
    );
    assert_eq!(
        fs::read_to_string(world.known()).unwrap(),
        format!(
            "# The signers that this machine trusts, and for which names: `tunebox` adds a signer that you accept.\n\
             # If you remove an entry, `tunebox` asks about its signer again.\nschema = 1\n\n[[publisher]]\n\
             prefix = \"registry.example/me\"\nkey = \"{signer}\"\nfirst-seen = \"{}\"\nsource = \"{PLACE}\"\n\
             packages = [\"calm-dpo\"]\n",
            today()
        )
    );
}

#[test]
fn a_lock_that_was_edited_wrongly_is_refused_with_its_line_and_column() {
    let (world, key) = (World::new(), key());
    world.take(&signed("calm-dpo", "0.1.0", &key), PLACE);
    let good = fs::read_to_string(world.lock()).unwrap();
    let digest = digest::sha256(&package("calm-dpo", "0.1.0"));
    let signer = &key.signer().key;
    for (from, to, wanted) in [
        ("schema = 1", "schema = 2", "tunebox.lock:2:10: `schema` is 2, this program reads 1 | schema = 2"),
        (
            "highest =",
            "hihgest =",
            "tunebox.lock:11:1: unknown key `hihgest`, expected one of `name`, `version`, `source`, `sha256`, `signer`, `interface`, `highest` | hihgest = \"0.1.0\"",
        ),
        (
            "highest = \"0.1.0\"",
            "highest = \"0.0.9\"",
            "tunebox.lock:11:11: `highest` is 0.0.9, below the version 0.1.0 that is used | highest = \"0.0.9\"",
        ),
        (
            "version = \"0.1.0\"",
            "version = \"0.1\"",
            "tunebox.lock:6:11: the version `0.1` is not of the form `1.2.3` or `1.2.3-beta.4` | version = \"0.1\"",
        ),
        (
            "calm-dpo\"\nv",
            "Calm\"\nv",
            "tunebox.lock:5:8: this is not the name of a package: lower-case words joined by hyphens | name = \"Calm\"",
        ),
        (signer, "RWQ", "tunebox.lock:9:10: `signer` is not a public key of minisign (`RW…`) | signer = \"RWQ\""),
        (&digest, "9F2C", "tunebox.lock:8:10: `sha256` is not 64 hexadecimal digits in lower case | sha256 = \"9F2C\""),
        (
            "version = \"0.1.0\"",
            "version = 1",
            "tunebox.lock:6:11: invalid type: integer `1`, expected a string | version = 1",
        ),
    ] {
        fs::write(world.lock(), good.replacen(from, to, 1)).unwrap();
        let error = Trust::with_keyring(world.home.path(), world.project.path(), None).unwrap_err();
        assert_eq!(complaint(&error), wanted);
        assert_eq!((error.category().as_ref(), error.exit()), ("trust", Exit::Usage));
    }
    fs::write(world.lock(), format!("{good}\n{}", &good[good.find("[[").unwrap()..])).unwrap();
    let error = Trust::with_keyring(world.home.path(), world.project.path(), None).unwrap_err();
    assert_eq!(complaint(&error), "tunebox.lock:14:8: `calm-dpo` is locked twice | name = \"calm-dpo\"");
}

#[test]
fn a_list_of_publishers_that_was_edited_wrongly_is_refused_with_its_line_and_column() {
    let (world, key) = (World::new(), key());
    world.take(&signed("calm-dpo", "0.1.0", &key), PLACE);
    let good = fs::read_to_string(world.known()).unwrap();
    for (from, to, wanted) in [
        (
            "prefix =",
            "prefx =",
            "publishers.toml:6:1: unknown key `prefx`, expected one of `listed`, `prefix`, `key`, `first-seen`, `source`, `packages` | prefx = \"registry.example/me\"",
        ),
        (
            "example/me\"",
            "example/Me\"",
            "publishers.toml:6:10: `prefix` is not of the form `registry.example/namespace` in lower case, without a version | prefix = \"registry.example/Me\"",
        ),
        (
            &today(),
            "2026-02-30",
            "publishers.toml:8:14: `first-seen` is not a day as in 2026-11-22 | first-seen = \"2026-02-30\"",
        ),
        (
            "[\"calm-dpo\"]",
            "[\"calm dpo\"]",
            "publishers.toml:10:13: this is not the name of a package: lower-case words joined by hyphens | packages = [\"calm dpo\"]",
        ),
    ] {
        fs::write(world.known(), good.replacen(from, to, 1)).unwrap();
        let error = Trust::with_keyring(world.home.path(), world.project.path(), None).unwrap_err();
        assert_eq!(complaint(&error), wanted);
    }
    for bytes in [&b"\xff\xfe"[..], b"schema = ", b"publisher = []\n"] {
        fs::write(world.known(), bytes).unwrap();
        assert!(Trust::with_keyring(world.home.path(), world.project.path(), None).is_err());
    }
}

#[test]
fn a_torn_file_is_refused_or_holds_only_what_was_in_it() {
    let (world, key) = (World::new(), key());
    for name in ["calm-dpo", "loud-orpo"] {
        world.take(&signed(name, "0.1.0", &key), &format!("registry.example/me/{name}:0.1.0"));
    }
    let whole = world.open();
    let (lock, known) = (fs::read_to_string(world.lock()).unwrap(), fs::read_to_string(world.known()).unwrap());
    for length in 0..lock.len() {
        if let Ok(torn) = Lock::parse("tunebox.lock", &lock[..length]) {
            assert!(torn.list.iter().all(|locked| whole.lock.find(&locked.name) == Some(locked)), "cut to {length}");
        }
    }
    for length in 0..known.len() {
        if let Ok(torn) = Publishers::parse("publishers.toml", &known[..length]) {
            let same = |one: &Publisher| {
                whole.publishers.list.iter().any(|all| (&all.prefix, &all.key) == (&one.prefix, &one.key))
            };
            assert!(torn.list.iter().all(same), "cut to {length}");
        }
    }
}

#[test]
fn commands_side_by_side_lose_nothing_and_see_only_whole_files() {
    let (world, key) = (World::new(), key());
    let names: Vec<String> = ('a'..='p').map(|letter| format!("{}-method", letter.to_string().repeat(6))).collect();
    thread::scope(|scope| {
        for name in &names {
            let (world, key) = (&world, &key);
            scope.spawn(move || {
                for version in ["0.1.0", "0.2.0", "0.3.0"] {
                    world.take(&signed(name, version, key), &format!("registry.example/me/{name}:{version}"));
                }
            });
        }
    });
    let trust = world.open();
    let locked: Vec<_> =
        trust.lock().list.iter().map(|locked| (locked.name.clone(), locked.highest.as_str())).collect();
    let wanted: Vec<_> = names.iter().map(|name| (name.clone(), "0.3.0")).collect();
    assert_eq!(locked, wanted);
    let known: Vec<_> = trust.publishers().map(|(_, publisher)| publisher.packages.clone()).collect();
    assert_eq!(known, [names]);
    let left = |folder: &TempDir| fs::read_dir(folder.path()).unwrap().count();
    assert_eq!((left(&world.home), left(&world.project)), (1, 1));
}

#[test]
fn of_two_commands_that_pin_a_name_to_different_keys_the_second_is_refused() {
    let (world, mine, theirs) = (World::new(), key(), key());
    let (mut first, mut second) = (world.open(), world.open());
    first.admit(&signed("calm-dpo", "0.1.0", &mine), PLACE, Mode::Ask(&mut |_| true)).unwrap();
    second.admit(&signed("calm-dpo", "0.2.0", &theirs), "o.example/me/calm-dpo", Mode::Ask(&mut |_| true)).unwrap();
    first.commit().unwrap();
    let before = fs::read(world.known()).unwrap();
    assert_eq!(second.commit().unwrap_err().to_string(), "another key signs it than before");
    assert_eq!(fs::read(world.known()).unwrap(), before);
}

#[test]
fn nothing_is_written_that_could_not_be_read_again() {
    let world = World::new();
    let long = format!("/media/{}", "stick".repeat(2_000));
    for (name, source) in [
        ("calm-dpo", "[::1]:5099/me/calm-dpo:0.1.0"),
        ("loud-orpo", "/media/a\u{1b}[2Jb"),
        ("plain-tone", long.as_str()),
    ] {
        world.take(&signed(name, "0.1.0", &key()), source);
        assert!(world.open().lock().find(name).is_some(), "{source}");
    }
    let known = world.open().publishers().next().unwrap().1.prefix.clone();
    assert_eq!(known, "[::1]:5099/me");

    // What has no place in the files is refused before either is touched.
    let before = (fs::read(world.lock()).unwrap(), fs::read(world.known()).unwrap());
    let mut trust = world.open();
    trust.admit(&signed("even-tone", "0.1.0", &key()), "a b/me/even-tone", Mode::Ask(&mut |_| true)).unwrap();
    let error = trust.commit().unwrap_err();
    assert!(error.to_string().starts_with("what is to be written into it could not be read again: "), "{error}");
    assert_eq!((fs::read(world.lock()).unwrap(), fs::read(world.known()).unwrap()), before);
}

#[test]
fn what_another_process_pinned_meanwhile_is_not_installed() {
    let (world, mine, theirs) = (World::new(), key(), key());
    let mut trust = world.open();
    trust.admit(&signed("calm-dpo", "0.2.0", &theirs), "o.example/me/calm-dpo", Mode::Ask(&mut |_| true)).unwrap();
    world.take(&signed("calm-dpo", "0.1.0", &mine), PLACE);
    let refused = trust.commit_with(|| -> Result<(), Error> { panic!("it was installed") }).unwrap_err();
    assert_eq!(refused.to_string(), "another key signs it than before");
    // What cannot be installed is not written down.
    let mut trust = world.open();
    let before = fs::read(world.lock()).unwrap();
    trust.admit(&signed("calm-dpo", "0.3.0", &mine), "/media/stick", Mode::Ask(&mut |_| true)).unwrap();
    let full = || -> Result<(), Error> { Err(Error::Precompiled) };
    assert!(matches!(trust.commit_with(full), Err(Error::Precompiled)));
    assert_eq!(fs::read(world.lock()).unwrap(), before);
}

#[test]
fn entries_of_one_prefix_and_key_are_one() {
    let key = key();
    let text = organization::list(&[("ghcr.io/acme", &key), ("GHCR.io:443/acme", &key), ("ghcr.io/acme", &key)]);
    let text = text.replacen("prefix = \"GHCR", "packages = [\"calm-dpo\"]\nprefix = \"GHCR", 1);
    let read = Publishers::parse("acme.toml", &text).unwrap();
    let [one] = &read.list[..] else { panic!("{read:?}") };
    assert_eq!((one.prefix.as_str(), &one.packages[..]), ("ghcr.io/acme", &["calm-dpo".to_owned()][..]));
}

#[test]
fn a_list_of_publishers_that_others_may_change_is_not_read() {
    use std::os::unix::fs::PermissionsExt;
    let (world, key) = (World::new(), key());
    world.take(&signed("calm-dpo", "0.1.0", &key), PLACE);
    let allow = |mode| fs::set_permissions(world.known(), fs::Permissions::from_mode(mode)).unwrap();
    allow(0o664);
    let error = Trust::with_keyring(world.home.path(), world.project.path(), None).unwrap_err();
    assert_eq!(error.to_string(), format!("others may write into `{}`", world.known().display()));
    allow(0o644);
    world.open();
}
