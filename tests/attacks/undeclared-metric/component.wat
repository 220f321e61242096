;; Reports under a name that its manifest does not list, and says what it was told.
(import "tunebox:method/run@0.2.0" "metric" (func $metric (param i32 i32 f32 i32)))
(data (i32.const 256) "secret")
(func $step (param i32) (result i32)
  (call $metric (i32.const 256) (i32.const 6) (f32.const 0.5) (i32.const 64))
  (call $pass-on))
