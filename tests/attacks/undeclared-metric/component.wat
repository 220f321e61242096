;; Reports under a name that its manifest does not list, and says what it was told.
(data (i32.const 256) "secret")
(func $step (param i32) (result i32)
  (call $run/metric (i32.const 256) (i32.const 6) (f32.const 0.5) (i32.const 64))
  (call $pass-on))
