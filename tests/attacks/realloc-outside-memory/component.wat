;; Offers room outside its memory for the host to write an answer to.
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const -16))
(func $step (param i32) (result i32)
  (call $tensor/ones (i32.const 256) (i32.const 9) (i32.const 5) (i32.const 64))
  (call $done))
