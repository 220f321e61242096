//! The models that were fetched before, by their names.

use super::Hub;

/// How the cache calls the folder of a model: `models--owner--name`.
const PREFIX: &str = "models--";

impl Hub {
    /// The names, as `owner/model`, of the models that have a folder in the cache, sorted. Empty if there is no cache.
    /// Does not check that their files are complete.
    #[must_use]
    pub fn cached_models(&self) -> Vec<String> {
        let entries = self.cache.as_ref().and_then(|folder| std::fs::read_dir(folder).ok());
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            Some(name.strip_prefix(PREFIX)?.replace("--", "/"))
        };
        let mut names: Vec<String> = entries.into_iter().flatten().filter_map(name).collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_the_cache_are_named_as_on_the_hub_and_nothing_else_is() {
        let cache = tempfile::tempdir().unwrap();
        for folder in ["models--Qwen--Qwen2.5-0.5B", "models--HuggingFaceTB--SmolLM2-135M", "datasets--a--b"] {
            std::fs::create_dir(cache.path().join(folder)).unwrap();
        }
        let hub = Hub::at("https://hub.example", cache.path(), true);
        assert_eq!(hub.cached_models(), ["HuggingFaceTB/SmolLM2-135M", "Qwen/Qwen2.5-0.5B"]);
    }
}
