;; Asks for a sequence whose step is too small to ever get anywhere.
(import "tunebox:method/tensor@0.2.0" "arange" (func $sequence (param f32 f32 i32 i32)))
(func $step (param i32) (result i32)
  (call $sequence (f32.const 16777216) (f32.const 1e-30) (i32.const -1) (i32.const 64))
  (call $pass-on))
