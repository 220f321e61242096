//! Signers: the first use of one, a change of one, and what an organization says of them.

use super::*;

#[test]
fn the_first_use_asks_and_the_second_does_not() {
    let (world, key) = (World::new(), key());
    let artifact = signed("calm-dpo", "0.1.0", &key);
    let (mut trust, mut asked) = (world.open(), Vec::new());
    let admitted = trust.admit(
        &artifact,
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

    let mut unasked = |question: &Question| -> bool { panic!("asked about {question:?}") };
    let admitted = world.open().admit(&artifact, PLACE, Mode::Ask(&mut unasked)).unwrap();
    assert_eq!(admitted.first_seen, Some(today()));
    // Neither for a newer version, nor for another package of the same namespace.
    let newer = signed("calm-dpo", "0.2.0", &key);
    let admitted = world.open().admit(&newer, "registry.example/me/calm-dpo:0.2.0", Mode::Ask(&mut unasked)).unwrap();
    assert_eq!(admitted.previous.as_deref(), Some("0.1.0"));
    let sibling = signed("loud-orpo", "1.0.0", &key);
    world.open().admit(&sibling, "registry.example/me/loud-orpo:1.0.0", Mode::Ask(&mut unasked)).unwrap();
}

#[test]
fn a_signer_who_is_not_accepted_is_refused_with_the_command_that_would() {
    let (world, key) = (World::new(), key());
    let artifact = signed("calm-dpo", "0.1.0", &key);
    let error = world.open().admit(&artifact, PLACE, Mode::Ask(&mut |_| false)).unwrap_err();
    let signer = key.signer();
    assert_eq!(
        text(&error),
        format!(
            "error[trust]: its signer is not accepted on this machine\n  --> calm-dpo@0.1.0 from {PLACE}\n\
             why:  {signer} signs for `registry.example/me` and is not known on this machine\n\
             kept: nothing was installed and nothing ran\n\
             hint: compare the key with the one that the publisher shows, then `tunebox pull {PLACE} --yes`\n"
        )
    );
}

#[test]
fn an_unsigned_package_comes_in_from_a_path_and_from_no_registry() {
    let world = World::new();
    let artifact = plain("calm-dpo", "0.1.0");
    assert_eq!(
        text(&world.refusal(&artifact, PLACE)),
        format!(
            "error[trust]: this package is not signed\n  --> calm-dpo@0.1.0 from {PLACE}\n\
             why:  anyone with access to the registry could have uploaded it; only a package at a local path may be unsigned\n\
             kept: nothing was installed and nothing ran\n\
             hint: ask the publisher to sign it: `tunebox pack --sign KEY`, then `tunebox push`\n"
        )
    );
    world.take(&artifact, "/media/stick");
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
fn a_new_key_is_told_with_all_places_that_know_the_old_one() {
    let (world, mine, theirs) = (World::new(), key(), key());
    world.take(&signed("calm-dpo", "0.1.0", &mine), PLACE);
    let newer = signed("calm-dpo", "0.2.0", &theirs);
    let hint = world.refusal(&newer, "registry.example/me/calm-dpo:0.2.0").hint().unwrap();
    let both =
        format!("take `calm-dpo` out of tunebox.lock and `registry.example/me` out of {}", world.known().display());
    assert!(hint.ends_with(&both), "{hint}");
    // Both taken out, it is a first use.
    fs::remove_file(world.lock()).unwrap();
    fs::remove_file(world.known()).unwrap();
    world.take(&newer, "registry.example/me/calm-dpo:0.2.0");
}

#[test]
fn the_same_name_from_a_new_signer_is_a_doubt_that_no_flag_answers() {
    let (world, mine, theirs) = (World::new(), key(), key());
    world.take(&signed("calm-dpo", "0.1.0", &mine), PLACE);
    let elsewhere = World { home: world.home, project: tempfile::tempdir().unwrap() };
    let source = "other.example/you/calm-dpo:0.1.0";
    let (found, error) = doubts(elsewhere.open(), &signed("calm-dpo", "0.1.0", &theirs), source);
    assert_eq!(found, ["`calm-dpo` is known as a package of `registry.example/me`"]);
    assert_eq!(
        text(&error),
        format!(
            "error[trust]: its signer is new on this machine, and there are doubts about it\n  --> calm-dpo@0.1.0 from {source}\n\
             why:  {} is not known on this machine; `calm-dpo` is known as a package of `registry.example/me`\n\
             kept: nothing was installed and nothing ran\n\
             hint: compare the key with the one that the publisher shows; `--yes` does not answer this, a person at a terminal does\n",
            theirs.signer()
        )
    );
    let (found, _) =
        doubts(elsewhere.open(), &signed("plain-tone", "0.1.0", &theirs), "other.example/you/plain-tone:0.1.0");
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_namespace_that_is_taken_for_another_one_of_its_registry_is_a_doubt() {
    let (world, mine, theirs) = (World::new(), key(), key());
    world.take(&signed("calm-dpo", "0.1.0", &mine), "ghcr.io/acme/calm-dpo:0.1.0");
    let package = signed("plain-tone", "0.1.0", &theirs);
    let (found, _) = doubts(world.open(), &package, "ghcr.io/acrne/plain-tone:0.1.0");
    assert_eq!(found, ["`ghcr.io/acrne` looks like `ghcr.io/acme`, for which another key signs"]);
    for source in ["other.example/acrne/plain-tone:0.1.0", "ghcr.io/loud/plain-tone:0.1.0"] {
        assert!(doubts(world.open(), &package, source).0.is_empty(), "{source}");
    }
}

#[test]
fn a_name_that_was_pinned_without_a_signer_gets_one_only_from_a_person() {
    let (world, theirs) = (World::new(), key());
    world.take(&plain("calm-dpo", "0.1.0"), "/media/stick");
    let newer = signed("calm-dpo", "0.2.0", &theirs);
    let source = "other.example/you/calm-dpo:0.2.0";
    let (found, _) = doubts(world.open(), &newer, source);
    assert_eq!(found, ["tunebox.lock pins `calm-dpo` without any signer, from /media/stick"]);
    world.take(&newer, source);
    assert_eq!(world.open().lock().find("calm-dpo").unwrap().signer.as_deref(), Some(theirs.signer().key.as_str()));
}

#[test]
fn a_name_that_was_pinned_without_a_signer_is_not_taken_over_by_a_known_one_unasked() {
    let (world, theirs) = (World::new(), key());
    world.take(&signed("loud-orpo", "0.1.0", &theirs), "other.example/you/loud-orpo:0.1.0");
    world.take(&plain("calm-dpo", "0.1.0"), "/media/stick");
    let (newer, source) = (signed("calm-dpo", "0.2.0", &theirs), "other.example/you/calm-dpo:0.2.0");
    let (found, error) = doubts(world.open(), &newer, source);
    assert_eq!(found, ["tunebox.lock pins `calm-dpo` without any signer, from /media/stick"]);
    assert_eq!(
        text(&error),
        format!(
            "error[trust]: it would replace an unsigned package\n  --> calm-dpo@0.2.0 from {source}\n\
             why:  tunebox.lock pins `calm-dpo` without any signer, from /media/stick; this one is signed by {} and comes \
             from elsewhere\n\
             kept: nothing was installed and nothing ran\n\
             hint: if it is the same package, a person at a terminal says so, which `--yes` does not; or take `calm-dpo` \
             out of tunebox.lock\n",
            theirs.signer()
        )
    );
    // From where the unsigned one came, it is what follows it.
    let mut unasked = |question: &Question| -> bool { panic!("asked about {question:?}") };
    world.open().admit(&newer, "/media/stick", Mode::Ask(&mut unasked)).unwrap();
    world.take(&newer, source);
    assert_eq!(world.open().lock().find("calm-dpo").unwrap().source, "other.example/you/calm-dpo");
}
