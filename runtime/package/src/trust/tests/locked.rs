//! `--locked`: only packages that the lock pins are accepted.

use super::*;

#[test]
fn locked_takes_what_the_lock_holds_without_asking_and_nothing_else() {
    let (world, key) = (World::new(), key());
    let artifact = signed("calm-dpo", "0.1.0", &key);
    world.take(&artifact, PLACE);
    let before = (fs::read(world.lock()).unwrap(), fs::read(world.known()).unwrap());
    let mut trust = world.open();
    assert_eq!(trust.admit(&artifact, PLACE, Mode::Locked).unwrap().signer.as_ref(), Some(key.signer()));
    trust.commit().unwrap();
    assert_eq!((fs::read(world.lock()).unwrap(), fs::read(world.known()).unwrap()), before);

    let newer = "registry.example/me/calm-dpo:0.2.0";
    let error = world.open().admit(&signed("calm-dpo", "0.2.0", &key), newer, Mode::Locked).unwrap_err();
    assert_eq!(
        text(&error),
        format!(
            "error[trust]: it is not in the lock\n  --> calm-dpo@0.2.0 from {newer}\n\
             why:  tunebox.lock pins version 0.1.0, and `--locked` accepts no other\n\
             kept: nothing was installed and nothing ran\n\
             hint: run the same command without `--locked`: it adds the package, and asks before it trusts a new signer\n"
        )
    );
    let other = "registry.example/me/loud-orpo:1.0.0";
    let error = world.open().admit(&signed("loud-orpo", "1.0.0", &key), other, Mode::Locked).unwrap_err();
    let wanted = "`--locked` accepts only packages that tunebox.lock pins, from the signer that it names";
    assert_eq!(error.why().unwrap(), wanted);
}

#[test]
fn a_lock_that_came_with_a_project_accepts_no_signer_for_a_person() {
    let (world, key) = (World::new(), key());
    let artifact = signed("calm-dpo", "0.1.0", &key);
    world.take(&artifact, PLACE);
    // A machine that has never seen the signer, with a lock from elsewhere.
    let fresh = World { home: tempfile::tempdir().unwrap(), project: world.project };
    let error = fresh.open().admit(&artifact, PLACE, Mode::Locked).unwrap_err();
    assert_eq!(
        text(&error),
        format!(
            "error[trust]: its signer is not accepted on this machine\n  --> calm-dpo@0.1.0 from {PLACE}\n\
             why:  tunebox.lock names {} for `registry.example/me`, and this machine does not trust that signer yet: a lock alone does not make it trusted\n\
             kept: nothing was installed and nothing ran\n\
             hint: accept it once with the same command without `--locked`; on an unattended machine, let TUNEBOX_PUBLISHERS name a list that has it\n",
            key.signer()
        )
    );
    // A named list accepts it, as on an unattended machine.
    let list = fresh.home.path().join("acme.toml");
    fs::write(&list, organization::list(&[("registry.example/me", &key)])).unwrap();
    let mut trust = Trust::with_keyring(fresh.home.path(), fresh.project.path(), Some(&list)).unwrap();
    trust.admit(&artifact, PLACE, Mode::Locked).unwrap();
    // So does a person, once.
    fresh.take(&artifact, PLACE);
    fresh.open().admit(&artifact, PLACE, Mode::Locked).unwrap();
}

#[test]
fn the_lock_means_one_registry_and_namespace_however_they_are_written() {
    let (world, key) = (World::new(), key());
    let artifact = signed("calm-dpo", "0.1.0", &key);
    world.take(&artifact, "mirror.example/me/calm-dpo:0.1.0");
    world.take(&artifact, PLACE);
    for same in ["Registry.example.:443/me/calm-dpo:0.1.0", "registry.example:80/me/calm-dpo:0.1.0", "/media/stick"] {
        assert!(world.open().admit(&artifact, same, Mode::Locked).is_ok(), "{same}");
    }
    let other = "mirror.example/me/calm-dpo:0.1.0";
    assert_eq!(
        text(&world.open().admit(&artifact, other, Mode::Locked).unwrap_err()),
        format!(
            "error[trust]: it comes from another source than tunebox.lock names\n  --> calm-dpo@0.1.0 from {other}\n\
             why:  tunebox.lock has it from registry.example/me/calm-dpo\n\
             kept: nothing was installed and nothing ran\n\
             hint: pull it from registry.example/me/calm-dpo; or run the same command without `--locked` to accept this one\n"
        )
    );
}
