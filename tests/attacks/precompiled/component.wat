;; Brings machine code that a host would have to trust: the beginning of what wasmtime writes when it compiles ahead.
(func $step (param i32) (result i32) (call $done))
