;; Asks for a tensor with a thousand axes.
(import "tunebox:method/tensor@0.2.0" "ones" (func $ones (param i32 i32 i32 i32)))
(func $step (param i32) (result i32)
  (call $ones (i32.const 512) (i32.const 1000) (i32.const 5) (i32.const 64))
  (call $pass-on))
