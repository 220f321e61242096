;; Updates itself by noise of infinite size.
(data (i32.const 256) "noise")
(func $step (param i32) (result i32)
  (call $optimizer/add-noise (i32.const 256) (i32.const 5) (i32.const 0) (f32.const inf) (i32.const 64))
  (call $pass-on))
