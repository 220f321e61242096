;; Asks for a sequence that begins at no number.
(func $step (param i32) (result i32)
  (call $tensor/arange (f32.const nan) (f32.const 1) (i32.const 10) (i32.const 64))
  (call $pass-on))
