;; Takes out a direction of another width.
(data (i32.const 256) "\03\00\00\00\02\00\00\00")
;; Ones of the shape [3], or [2] from 260 on.
(func $vector (param $shape i32) (result i32)
  (call $tensor/ones (local.get $shape) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $handle))
(func $step (param i32) (result i32)
  (call $weights/project-out (i32.const 4) (i32.const 0) (call $vector (i32.const 260)) (f32.const 1) (i32.const 0) (i32.const 64))
  (call $pass-on))
