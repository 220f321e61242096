;; Asks for four thousand million completions of a prompt.
(import "tunebox:method/sample@0.2.0" "[constructor]sampler" (func $sampler (result i32)))
(import "tunebox:method/sample@0.2.0" "[method]sampler.completions" (func $completions (param i32 i32 i32)))
(func $step (param i32) (result i32)
  (call $completions (call $sampler) (i32.const -1) (i32.const 64))
  (call $pass-on))
