;; Updates itself, and subtracts a change that is not a number from every parameter.
(func $step (param i32) (result i32)
  (call $optimizer/parameter.gradient (call $optimizer/all) (i32.const 64))
  (call $tensor/tensor.add-scalar (call $handle) (f64.const -1) (i32.const 64))
  (call $tensor/tensor.sqrt (call $handle) (i32.const 64))
  (call $optimizer/parameter.subtract (call $optimizer/all) (call $handle) (i32.const 64))
  (call $pass-on))
