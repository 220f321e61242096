//! Names that could be taken for another, and versions that are older.

use super::*;

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
             why:  tunebox.lock has seen 0.10.0-beta.2, and an older version would bring back flaws that were fixed since\n\
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
    let (source, artifact) = ("other.example/you/ca1m-dpo:0.1.0", signed("ca1m-dpo", "0.1.0", &theirs));
    let wanted = |why: &str| {
        format!(
            "error[trust]: its name looks like `calm-dpo`\n  --> ca1m-dpo@0.1.0 from {source}\nwhy:  {why}\n\
             kept: nothing was installed and nothing ran\nhint: did you mean `calm-dpo`?\n"
        )
    };
    assert_eq!(
        text(&world.refusal(&artifact, source)),
        wanted(
            "that is a package of registry.example/me/calm-dpo in tunebox.lock, and this package is by another author"
        )
    );
    let elsewhere = World { home: world.home, project: tempfile::tempdir().unwrap() };
    assert_eq!(
        text(&elsewhere.refusal(&artifact, source)),
        wanted("that is a package of the publisher `registry.example/me`, and this package is by another author")
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
         why:  that is built into tunebox, and this package is by another author\n\
         kept: nothing was installed and nothing ran\nhint: did you mean `lora`?\n"
    );
    let error = world.refusal(&signed("dpo", "9.0.0", &key), "registry.example/me/dpo:9.0.0");
    assert_eq!(error.to_string(), "its name looks like `dpo`");
    let packed = pack::pack(builtin::find("dpo").unwrap().bytes, Some("# DPO\n")).unwrap();
    let version = Statement::of(&packed).unwrap().version;
    world.take(&resigned(packed, &key), &format!("registry.example/me/dpo:{version}"));
}

#[test]
fn a_look_alike_that_a_foreign_lock_pins_is_refused_all_the_same() {
    let (world, theirs, mine) = (World::new(), key(), key());
    world.take(&signed("ca1m-dpo", "0.1.0", &theirs), "other.example/you/ca1m-dpo:0.1.0");
    // Here the name that it resembles is in use, and its signer is not known.
    let here = World::new();
    here.take(&signed("calm-dpo", "0.1.0", &mine), PLACE);
    let cloned = World { home: here.home, project: world.project };
    let error = cloned.refusal(&signed("ca1m-dpo", "0.1.0", &theirs), "other.example/you/ca1m-dpo:0.1.0");
    assert_eq!(error.to_string(), "its name looks like `calm-dpo`");
}
