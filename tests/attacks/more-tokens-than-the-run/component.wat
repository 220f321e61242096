;; Lets a completion be longer than the run allows.
(import "tunebox:method/sample@0.2.0" "[constructor]sampler" (func $sampler (result i32)))
(import "tunebox:method/sample@0.2.0" "[method]sampler.max-tokens" (func $tokens (param i32 i32 i32)))
(func $step (param i32) (result i32)
  (call $tokens (call $sampler) (i32.const 9) (i32.const 64))
  (call $pass-on))
