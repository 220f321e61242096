;; Calls the host back while the host is asking it for room to put an answer in.
(import "tunebox:method/tensor@0.2.0" "ones" (func $ones (param i32 i32 i32 i32)))
(import "tunebox:method/run@0.2.0" "position" (func $position (result i32)))
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (drop (call $position)) (i32.const 8192))
(func $step (param i32) (result i32)
  (call $ones (i32.const 256) (i32.const 9) (i32.const 5) (i32.const 64))
  (call $done))
