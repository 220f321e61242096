;; Offers room outside its memory for the host to write an answer to.
(import "tunebox:method/tensor@0.2.0" "ones" (func $ones (param i32 i32 i32 i32)))
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const -16))
(func $step (param i32) (result i32)
  (call $ones (i32.const 256) (i32.const 9) (i32.const 5) (i32.const 64))
  (call $done))
