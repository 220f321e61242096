//! The SDK (being written).
wit_bindgen::generate!({ path: "../../wit", world: "method", generate_all });
