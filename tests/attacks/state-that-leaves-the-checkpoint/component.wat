;; Keeps state under a name that would be a path in the file of a checkpoint.
(data (i32.const 256) "../../key")
(func $step (param i32) (result i32)
  (call $optimizer/parameter.state (call $optimizer/all) (i32.const 256) (i32.const 9) (i32.const 64))
  (call $pass-on))
