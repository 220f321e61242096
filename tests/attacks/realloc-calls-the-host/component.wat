;; Calls the host back while the host is asking it for room to put an answer in.
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (drop (call $run/position)) (i32.const 8192))
(func $step (param i32) (result i32)
  (call $tensor/ones (i32.const 256) (i32.const 9) (i32.const 5) (i32.const 64))
  (call $done))
