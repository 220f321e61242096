//! Claims about the methods that edit a model or find directions in it: their numbers, and what they do to the tiny model.
//!
//! The numbers are those of `golden/editing.json`, made in f64; the real components run over given activations.
//! What an edit does is shown on the model inside the program, by what it writes before and after.

mod directions;
mod models;
