;; Wants to read the model's weights, which the run did not grant.
(import "tunebox:method/weights@0.2.0" "read-rows" (func $read (param i32 i32 i32 i32 i32)))
(func $step (param i32) (result i32)
  (call $read (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 64))
  (call $pass-on))
