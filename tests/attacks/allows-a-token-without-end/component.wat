;; Lets the model sample one token, named as often as its memory holds it.
(import "tunebox:method/sample@0.2.0" "[constructor]sampler" (func $sampler (result i32)))
(import "tunebox:method/sample@0.2.0" "[method]sampler.allow-tokens" (func $allow (param i32 i32 i32 i32)))
(func $step (param i32) (result i32)
  (call $allow (call $sampler) (i32.const 8192) (i32.const 40000) (i32.const 64))
  (call $pass-on))
