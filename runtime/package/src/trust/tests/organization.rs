//! An organization's list.

use super::*;

/// The text of a list.
pub(super) fn list(entries: &[(&str, &SecretKey)]) -> String {
    let entry = |(prefix, key): &(&str, &SecretKey)| {
        format!("[[publisher]]\nprefix = \"{prefix}\"\nkey = \"{}\"\n", key.signer())
    };
    format!("schema = 1\n{}", entries.iter().map(entry).collect::<String>())
}

#[test]
fn an_organizations_list_answers_for_its_names_and_refuses_others_there() {
    let (world, ours, theirs, next) = (World::new(), key(), key(), key());
    let file = world.home.path().join("acme.toml");
    fs::write(&file, list(&[("registry.example/acme", &ours), ("registry.example/acme", &next)])).unwrap();
    let open = || Trust::with_keyring(world.home.path(), world.project.path(), Some(&file)).unwrap();
    let mut unasked = |question: &Question| -> bool { panic!("asked about {question:?}") };
    let source = "registry.example/acme/tools/calm-dpo:0.1.0";
    // Any of the keys of a prefix is good, so that one can follow another.
    for key in [&ours, &next] {
        open().admit(&signed("calm-dpo", "0.1.0", key), source, Mode::Ask(&mut unasked)).unwrap();
    }
    let refused = open().admit(&signed("calm-dpo", "0.1.0", &theirs), source, Mode::Ask(&mut unasked)).unwrap_err();
    assert_eq!(refused.to_string(), "another key signs it than before");
    assert!(refused.hint().unwrap().ends_with(&format!("take `registry.example/acme` out of {}", file.display())));
    // A neighbor whose name merely begins alike is not covered.
    let neighbor = "registry.example/acmes/calm-dpo:0.1.0";
    open().admit(&signed("calm-dpo", "0.1.0", &theirs), neighbor, Mode::Ask(&mut |_| true)).unwrap();
    let missing = Trust::with_keyring(world.home.path(), world.project.path(), Some(Path::new("/no/such/list.toml")));
    assert!(missing.unwrap_err().to_string().ends_with("cannot be read"));
}

#[test]
fn an_organizations_list_overrules_what_a_person_accepted() {
    let (world, ours, stolen) = (World::new(), key(), key());
    // Accepted once, for a longer prefix than the organization's.
    world.take(&signed("calm-dpo", "0.1.0", &stolen), "registry.example/acme/tools/calm-dpo:0.1.0");
    let machine = World { home: world.home, project: tempfile::tempdir().unwrap() };
    let file = machine.home.path().join("acme.toml");
    fs::write(&file, list(&[("registry.example/acme", &ours)])).unwrap();
    let open = || Trust::with_keyring(machine.home.path(), machine.project.path(), Some(&file)).unwrap();

    let source = "registry.example/acme/tools/calm-dpo:0.2.0";
    let refused = |source: &str, key: &SecretKey| {
        let artifact = signed("calm-dpo", "0.2.0", key);
        open().admit(&artifact, source, Mode::Ask(&mut |_| false)).err().map(|error| error.to_string())
    };
    assert_eq!(refused(source, &stolen).as_deref(), Some("another key signs it than before"));
    assert_eq!(refused(source, &ours), None);
    // Nor does it carry anything on a stick any more.
    assert_eq!(refused("/media/stick", &stolen).as_deref(), Some("its signer is not accepted on this machine"));
    assert!(open().publishers().all(|(_, publisher)| publisher.key == ours.signer().key));
}

#[test]
fn a_list_covers_every_spelling_of_a_registry() {
    let (world, ours, theirs) = (World::new(), key(), key());
    let file = world.home.path().join("acme.toml");
    for prefix in ["Index.docker.io:443/acme", "docker.io/acme", "registry-1.docker.io./acme"] {
        fs::write(&file, list(&[(prefix, &ours)])).unwrap();
        for host in ["docker.io", "INDEX.docker.io", "registry-1.docker.io:443", "docker.io.", "docker.io:80"] {
            let mut trust = Trust::with_keyring(world.home.path(), world.project.path(), Some(&file)).unwrap();
            let (artifact, source) = (signed("calm-dpo", "0.1.0", &theirs), format!("{host}/acme/calm-dpo:0.1.0"));
            let error = trust.admit(&artifact, &source, Mode::Ask(&mut |_| true)).unwrap_err();
            assert_eq!(error.to_string(), "another key signs it than before", "{prefix} {host}");
        }
    }
    fs::write(&file, list(&[("acme/tools", &ours)])).unwrap();
    assert!(Trust::with_keyring(world.home.path(), world.project.path(), Some(&file)).is_err());
}

#[test]
fn what_a_list_vouched_for_raises_doubts_about_others_and_accepts_none() {
    let (world, ours, theirs) = (World::new(), key(), key());
    let file = world.home.path().join("acme.toml");
    fs::write(&file, list(&[("registry.example/acme", &ours)])).unwrap();
    let source = "registry.example/acme/calm-dpo:0.1.0";
    let artifact = signed("calm-dpo", "0.1.0", &ours);
    let mut trust = Trust::with_keyring(world.home.path(), world.project.path(), Some(&file)).unwrap();
    trust.admit(&artifact, source, Mode::Ask(&mut |_| false)).unwrap();
    trust.commit().unwrap();

    // In another project, and with or without the list.
    let other = World { home: world.home, project: tempfile::tempdir().unwrap() };
    for keyring in [None, Some(file.as_path())] {
        let open = || Trust::with_keyring(other.home.path(), other.project.path(), keyring).unwrap();
        let stranger = signed("calm-dpo", "0.1.0", &theirs);
        let (found, _) = doubts(open(), &stranger, "other.example/you/calm-dpo:0.1.0");
        assert_eq!(found, ["`calm-dpo` is known as a package of `registry.example/acme`"]);
        let alike = signed("ca1m-dpo", "0.1.0", &theirs);
        let error = open().admit(&alike, "other.example/you/ca1m-dpo:0.1.0", Mode::Ask(&mut |_| true)).unwrap_err();
        assert_eq!(error.to_string(), "its name looks like `calm-dpo`");
    }
    // It is no consent: without the list its signer is as new as any, and consent makes it known.
    let error = other.open().admit(&artifact, source, Mode::Ask(&mut |_| false)).unwrap_err();
    assert_eq!(error.to_string(), "its signer is not accepted on this machine");
    assert_eq!(other.open().publishers().count(), 0);
    other.take(&artifact, source);
    assert_eq!(other.open().publishers().map(|(_, known)| known.packages.len()).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_list_that_names_a_package_overrules_what_a_person_accepted_from_a_path() {
    let (world, ours, theirs) = (World::new(), key(), key());
    world.take(&signed("calm-dpo", "0.1.0", &theirs), "/media/stick");
    let machine = World { home: world.home, project: tempfile::tempdir().unwrap() };
    let file = machine.home.path().join("acme.toml");
    let named = list(&[("registry.example/acme", &ours)]) + "packages = [\"calm-dpo\"]\n";
    fs::write(&file, named).unwrap();
    let told = |name: &str, key: &SecretKey| {
        let mut trust = Trust::with_keyring(machine.home.path(), machine.project.path(), Some(&file)).unwrap();
        let admitted = trust.admit(&signed(name, "0.2.0", key), "/media/stick", Mode::Ask(&mut |_| false));
        admitted.err().map(|error| error.to_string())
    };
    assert_eq!(told("calm-dpo", &theirs).as_deref(), Some("another key signs it than before"));
    assert_eq!(told("calm-dpo", &ours), None);
    // Nor is that key known for anything else.
    assert_eq!(told("loud-orpo", &theirs).as_deref(), Some("its signer is not accepted on this machine"));
}

#[test]
fn what_a_list_vouched_for_still_speaks_when_the_list_names_another_key() {
    let (world, before, next, theirs) = (World::new(), key(), key(), key());
    let file = world.home.path().join("acme.toml");
    let open = |project: &Path| Trust::with_keyring(world.home.path(), project, Some(&file)).unwrap();
    fs::write(&file, list(&[("registry.example/acme", &before)])).unwrap();
    let mut trust = open(world.project.path());
    let artifact = signed("calm-dpo", "0.1.0", &before);
    trust.admit(&artifact, "registry.example/acme/calm-dpo:0.1.0", Mode::Ask(&mut |_| false)).unwrap();
    trust.commit().unwrap();

    fs::write(&file, list(&[("registry.example/acme", &next)])).unwrap();
    let project = tempfile::tempdir().unwrap();
    let stranger = signed("calm-dpo", "0.1.0", &theirs);
    let (found, refused) = doubts(open(project.path()), &stranger, "other.example/you/calm-dpo:0.1.0");
    assert_eq!(refused.to_string(), "its signer is new on this machine, and there are doubts about it");
    assert_eq!(found, ["`calm-dpo` is known as a package of `registry.example/acme`"]);
    // Whom the list names now goes on with the names, and may come near to them.
    for name in ["calm-dpo", "calm-dpoo"] {
        let source = format!("registry.example/acme/{name}:0.2.0");
        open(project.path()).admit(&signed(name, "0.2.0", &next), &source, Mode::Ask(&mut |_| false)).unwrap();
    }
}
