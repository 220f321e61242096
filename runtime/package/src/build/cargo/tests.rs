//! What cargo is told, and what becomes of a lock file that is behind.

use tunebox_foundation::explain::Explain as _;

use super::*;

#[test]
fn a_build_without_a_network_tells_cargo_so() {
    let toolchain = Toolchain {
        cargo: "cargo".into(),
        rustc: "rustc".into(),
        release: String::new(),
        library: Library::Installed,
        sysroot: PathBuf::new(),
        linker: None,
    };
    let told = |offline: bool| {
        let options = Options { offline, ..Options::default() };
        let job = Job { folder: Path::new("."), toolchain: &toolchain, options: &options };
        let cargo = job.cargo().unwrap();
        cargo.get_envs().any(|(name, value)| name == "CARGO_NET_OFFLINE" && value == Some("true".as_ref()))
    };
    assert_eq!([told(true), told(false)], [true, false]);
}

#[test]
fn a_raised_version_and_a_new_dependency_are_seen_in_the_lock() {
    let lock = "[[package]]\nname = \"calm\"\nversion = \"0.1.0\"\ndependencies = [\"syn 2.0.1\", \"tunebox\"]\n\
                [[package]]\nname = \"calmer\"\nversion = \"0.1.0\"\n";
    let lock: toml::Table = lock.parse().unwrap();
    let entries = lock["package"].as_array().unwrap();
    let behind = |version: &str, dependencies: &[&str]| {
        let dependencies = dependencies.iter().map(|name| (*name).to_owned()).collect();
        let (name, version, paths) = ("calm".to_owned(), version.to_owned(), Vec::new());
        behind(entries, &Package { name, version, root: "".into(), target: "".into(), dependencies, paths })
    };
    assert_eq!(behind("0.1.0", &["tunebox", "syn"]), (false, Vec::new()));
    assert_eq!(behind("0.2.0", &["tunebox"]), (true, Vec::new()));
    // It is there for another project.
    assert_eq!(behind("0.1.0", &["tunebox", "calmer"]), (false, vec!["calmer".to_owned()]));
}

#[test]
fn the_lock_takes_up_what_is_here_and_names_what_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let manifest = |name: &str, more: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{more}")
    };
    write("calmer/Cargo.toml", &manifest("calmer", ""));
    write("calmer/src/lib.rs", "");
    write("src/lib.rs", "");
    write("Cargo.lock", "version = 4\n\n[[package]]\nname = \"calm\"\nversion = \"0.1.0\"\n");
    let (toolchain, options) = (crate::toolchain::find().unwrap(), Options::default());
    let job = Job { folder: folder.path(), toolchain: &toolchain, options: &options };
    let followed = |dependency: &str| {
        write("Cargo.toml", &manifest("calm", &format!("[dependencies]\n{dependency}\n[workspace]\n")));
        job.follow(&job.describe().unwrap())
    };
    followed("calmer = { path = \"calmer\" }").unwrap();
    assert!(std::fs::read_to_string(folder.path().join("Cargo.lock")).unwrap().contains("name = \"calmer\""));
    let error = followed("calmer-of-nobody = \"1\"").unwrap_err();
    assert_eq!(error.to_string(), "`Cargo.lock` does not fit `Cargo.toml`");
    assert_eq!(error.why().unwrap(), "`calmer-of-nobody` is not in it, and not on this machine");
}
