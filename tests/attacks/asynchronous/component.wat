;; Offers a function that would go on after it returned.
(component
  (core module $m (func (export "f") (result i32) (i32.const 0)))
  (core instance $i (instantiate $m))
  (func (canon lift (core func $i "f") async)))
