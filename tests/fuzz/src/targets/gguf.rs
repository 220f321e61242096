//! GGUF files: the head, and everything that is read out of it.

use tunebox_compute::Device;
use tunebox_model::Model;
use tunebox_model::chat::ChatTemplate;
use tunebox_model::source::Source;
use tunebox_model::tokenizer::Tokenizer;
use tunebox_model::vectors::Vectors;
use tunebox_model::weights::gguf::Metadata;

use crate::Target;
use crate::scratch::with_file;

pub(super) const TARGET: Target = Target { name: "gguf", run, longest: 64 << 10, quick: 1_500 };

/// A head, a tokenizer, a template, a model, directions: each of them or an error.
fn run(bytes: &[u8]) {
    with_file("model.gguf", bytes, |path, _| {
        if let Ok(metadata) = Metadata::open(path)
            && let Ok(tokenizer) = Tokenizer::from_gguf(&metadata)
        {
            let _ = tokenizer.encode("Ein Satz mit 3 Wörtern\n", true);
            let _ = ChatTemplate::from_gguf(&metadata, &tokenizer);
        }
        if let Ok(source) = Source::open(&path.to_string_lossy(), true) {
            let _ = Model::open(&source, &Device::Cpu);
        }
        if let Ok(vectors) = Vectors::load(path) {
            let held: usize = vectors.layers.values().map(Vec::len).sum();
            // The densest format holds a little over three numbers a byte.
            assert!(held <= 4 * bytes.len(), "{held} numbers from {} bytes", bytes.len());
        }
    });
}
