//! The cache returns entries whole, and only from a folder that no other user can access.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use super::*;

const LARGEST: u64 = 1 << 20;

fn opened(path: &Path) -> CodeCache {
    CodeCache::open(path, "kind", LARGEST, LARGEST).unwrap()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn bytes_come_back_and_every_folder_that_is_made_is_ours_alone() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("above/entries");
    let kept = opened(&path);
    assert_eq!(kept.get("a"), None);
    kept.put("a", b"machine code");
    assert_eq!(kept.get("a").as_deref(), Some(&b"machine code"[..]));
    assert_eq!(kept.get("b"), None);
    assert_eq!([mode(&place.path().join("above")), mode(&path), mode(&path.join("a"))], [0o700, 0o700, 0o600]);
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "a draft is left");
}

#[test]
fn an_entry_with_any_byte_changed_cut_or_under_another_name_is_removed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("entries");
    let (kept, file) = (opened(&path), path.join("a"));
    kept.put("a", &[7; 100]);
    let whole = std::fs::read(&file).unwrap();
    let mut broken: Vec<Vec<u8>> = (0..whole.len()).map(|length| whole[..length].to_vec()).collect();
    broken.extend((0..whole.len()).map(|place| {
        let mut changed = whole.clone();
        changed[place] ^= 1;
        changed
    }));
    broken.push([&whole[..], b"more"].concat());
    for bytes in broken {
        std::fs::write(&file, &bytes).unwrap();
        assert_eq!(kept.get("a"), None);
        assert!(!file.exists(), "a broken entry stays");
    }
    std::fs::write(path.join("b"), &whole).unwrap();
    assert_eq!(kept.get("b"), None, "an entry under another name is taken");
    std::fs::write(&file, &whole).unwrap();
    let other = CodeCache::open(&path, "another kind", LARGEST, LARGEST).unwrap();
    assert_eq!(other.get("a"), None, "an entry of another kind is taken");
    kept.put("a", b"new");
    assert_eq!(kept.get("a").as_deref(), Some(&b"new"[..]), "it is not kept anew");
}

#[test]
fn a_folder_that_others_may_enter_or_a_link_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("entries");
    opened(&path);
    let refused = |path: &Path| CodeCache::open(path, "kind", LARGEST, LARGEST).unwrap_err();
    for mode in [0o777, 0o755, 0o770, 0o701] {
        set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert!(refused(&path).contains("others may enter it"), "{mode:o}");
    }
    set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    opened(&path);
    let link = place.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(refused(&link).contains("a link"));
    let file = place.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(refused(&file).contains("no folder"));
}

#[test]
fn an_entry_that_is_a_link_or_that_others_may_write_is_not_followed() {
    let place = tempfile::tempdir().unwrap();
    let (path, elsewhere) = (place.path().join("entries"), place.path().join("elsewhere"));
    let kept = opened(&path);
    kept.put("a", b"machine code");
    std::fs::rename(path.join("a"), &elsewhere).unwrap();
    symlink(&elsewhere, path.join("a")).unwrap();
    assert_eq!(kept.get("a"), None);
    assert!(elsewhere.exists());

    for mode in [0o620, 0o666] {
        kept.put("a", b"machine code");
        set_permissions(path.join("a"), Permissions::from_mode(mode)).unwrap();
        assert_eq!(kept.get("a"), None, "{mode:o}");
    }
}

#[test]
fn a_link_in_the_place_of_an_entry_is_replaced_and_its_target_left() {
    let place = tempfile::tempdir().unwrap();
    let (path, victim) = (place.path().join("entries"), place.path().join("victim"));
    let kept = opened(&path);
    std::fs::write(&victim, "mine").unwrap();
    symlink(&victim, path.join("a")).unwrap();
    kept.put("a", b"machine code");
    assert_eq!(kept.get("a").as_deref(), Some(&b"machine code"[..]));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
}

#[test]
fn the_oldest_entries_and_old_drafts_go_when_the_folder_is_full() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("entries");
    let kept = CodeCache::open(&path, "kind", LARGEST, 3 * (1000 + DIGEST as u64)).unwrap();
    let age = |name: &str, hours: u64| {
        let time = SystemTime::now() - Duration::from_secs(3600 * hours);
        File::options().append(true).open(path.join(name)).unwrap().set_modified(time).unwrap();
    };
    std::fs::write(path.join(".1-0-x"), "half").unwrap();
    age(".1-0-x", 2);
    for (name, hours) in [("a", 7), ("b", 5), ("c", 3)] {
        kept.put(name, &[1; 1000]);
        age(name, hours);
    }
    // Used just now, so not the oldest any more.
    assert!(kept.get("a").is_some());
    kept.put("d", &[1; 1000]);
    let entries = std::fs::read_dir(&path).unwrap();
    let mut left: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["a", "c", "d"]);
    kept.put("e", &[1; 10_000]);
    assert_eq!(kept.get("e"), None, "larger than the whole");
}
