;; Asks for four thousand million completions of a prompt.
(func $step (param i32) (result i32)
  (call $sample/sampler.completions (call $sample/sampler.new) (i32.const -1) (i32.const 64))
  (call $pass-on))
