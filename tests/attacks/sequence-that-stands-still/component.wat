;; Asks for a sequence whose step is too small to move it, and short enough to be made: it ends.
(import "tunebox:method/tensor@0.2.0" "arange" (func $sequence (param f32 f32 i32 i32)))
(func $step (param i32) (result i32)
  (call $sequence (f32.const 16777216) (f32.const 0.5) (i32.const 100000) (i32.const 64))
  (call $pass-on))
