;; Asks for a sequence that leaves the numbers behind.
(import "tunebox:method/tensor@0.2.0" "arange" (func $sequence (param f32 f32 i32 i32)))
(func $step (param i32) (result i32)
  (call $sequence (f32.const 3e38) (f32.const 3e38) (i32.const 10) (i32.const 64))
  (call $pass-on))
